"""A kernel of ours, or of BlackJAX, as a `numpyro.infer.MCMCKernel`."""

import copy
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, Float, PRNGKeyArray, PyTree
from numpyro.infer.gibbs import GIBBS_SITES_KWARG
from numpyro.infer.initialization import init_to_uniform
from numpyro.infer.mcmc import MCMCKernel
from numpyro.infer.util import initialize_model
from numpyro.util import is_prng_key

from jaxbnn.interop.numpyro_blocks import check_block
from jaxbnn.interop.numpyro_model import ModelPosterior, check_position
from jaxbnn.interop.numpyro_trace import (
    anywhere,
    bijection,
    check_is_a_function,
    check_sites,
    is_latent,
    model_terms,
    traced,
)
from jaxbnn.kernels import refresh
from jaxbnn.numerics.arguments import check_function

# Folded into a state's key for the key of a refresh; counters of a split are small.
_REFRESH_COUNTER = 2**32 - 2


class NumPyroState(NamedTuple):
    """What `numpyro.infer.MCMC` carries along for a kernel of `kernel`.

    Attributes
    ----------
    z
        Unconstrained values by site (or the position itself, with a `potential_fn`).
    kernel_state
        The state of the kernel.
    acceptance_rate
        Of the last step; NaN where the kernel reports no rate.
    rng_key
        The key of the next step.
    """

    z: PyTree
    kernel_state: PyTree
    acceptance_rate: Float[Array, "*chains"]
    rng_key: PRNGKeyArray


def kernel(
    make_kernel: Callable[[Callable[[PyTree], Array]], SamplingAlgorithm],
    model: Callable | None = None,
    *,
    potential_fn: Callable[[PyTree], Array] | None = None,
    layout: PyTree = None,
    init_strategy: Callable = init_to_uniform,
) -> "NumPyroKernel":
    """Return a kernel that `numpyro.infer.MCMC` runs, alone or as a block of `Gibbs`.

    Parameters
    ----------
    make_kernel
        `make_kernel(log_density_fn)` is the kernel, ours or BlackJAX's, of the model's posterior in
        unconstrained coordinates; called while tracing. pCN wants the density relative to its
        Gaussian: `lambda log_density: pcn(lambda u: log_density(u) - log_gaussian(u), 0.2)`.
    model
        The NumPyro model.
    potential_fn
        The negative log density, in place of a model; `MCMC.run` is then given `init_params`.
    layout
        A PyTree of site names in the places where the kernel wants their values, for kernels of a
        certain kind of position; `site_names` makes it for networks. None: a dict by site.
    init_strategy
        Where chains start, as for `numpyro.infer.NUTS`.

    Returns
    -------
    A `numpyro.infer.MCMCKernel`. It does not adapt: warm-up steps are steps left out. As a field of
    its state, "acceptance_rate" can be asked for in `extra_fields`.

    Raises
    ------
    ValueError
        Both or neither of model and potential_fn; in `init`, a layout without some of the sites
        that the kernel moves, `init_params` missing, or a model that `posterior_from_numpyro`
        refuses; as a block of `Gibbs`, sites whose support depends on other blocks' sites.
    TypeError
        `make_kernel` is no function.

    Examples
    --------
    >>> import jaxbnn, numpyro, numpyro.distributions as dist
    >>> from numpyro.infer import MCMC
    >>> def model(y):
    ...     mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    ...     numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)
    >>> def make_kernel(log_density):  # pCN keeps the prior; the rest is the likelihood
    ...     return jaxbnn.pcn(lambda u: log_density(u) + 0.5 * u["mean"] ** 2, 0.5)
    >>> mcmc = MCMC(kernel(make_kernel, model), num_warmup=10, num_samples=20, progress_bar=False)
    >>> mcmc.run(jax.random.key(0), jnp.ones(4))
    >>> mcmc.get_samples()["mean"].shape
    (20,)
    """
    check_function("make_kernel", make_kernel, "give log_density_fn -> kernel")
    if (model is None) == (potential_fn is None):
        raise ValueError("give either a NumPyro model or a potential_fn.")
    return NumPyroKernel(make_kernel, model, potential_fn, layout, init_strategy)


class NumPyroKernel(MCMCKernel):
    """What `kernel` returns.

    Parameters
    ----------
    make_kernel, model, potential_fn, layout, init_strategy
        As in `kernel`.

    Examples
    --------
    >>> import jaxbnn
    >>> made = kernel(lambda log_density: jaxbnn.smmala(log_density, 0.5), potential_fn=jnp.sum)
    >>> made.sample_field
    'z'
    """

    sample_field = "z"

    def __init__(
        self,
        make_kernel: Callable,
        model: Callable | None,
        potential_fn: Callable | None,
        layout: PyTree,
        init_strategy: Callable,
    ):
        self._make_kernel = make_kernel
        self._model = model
        self._potential_fn = potential_fn
        self._layout = layout
        self._init_strategy = init_strategy

    @property
    def model(self) -> Callable | None:
        """The model; None for a kernel of a potential."""
        return self._model

    def init(self, rng_key, num_warmup, init_params, model_args, model_kwargs):
        """Start a chain, or as many as there are keys.

        `init_params` are unconstrained, as for HMC; `Gibbs` gives its blocks constrained ones.
        """
        kwargs = {} if model_kwargs is None else model_kwargs
        if not is_prng_key(rng_key):
            return jax.vmap(lambda k, p: self._start(k, p, model_args, kwargs))(
                rng_key, init_params
            )
        return self._start(rng_key, init_params, model_args, kwargs)

    def sample(self, state, model_args, model_kwargs):
        """Take one step."""
        kwargs = {} if model_kwargs is None else model_kwargs

        def step(state):
            key, step_key = jax.random.split(state.rng_key)
            kernel_state, info = self._bind(model_args, kwargs).step(step_key, state.kernel_state)
            return self._state(kernel_state, key, info)

        return step(state) if is_prng_key(state.rng_key) else jax.vmap(step)(state)

    def refresh(self, state, model_args, model_kwargs):
        """Compute anew what is cached about the position: other blocks of a `Gibbs` have moved."""
        made = self._bind(model_args, {} if model_kwargs is None else model_kwargs)

        def one(state):
            key = jax.random.fold_in(state.rng_key, jnp.uint32(_REFRESH_COUNTER))
            position = state.kernel_state.position
            return state._replace(kernel_state=refresh(made, state.kernel_state, position, key))

        return one(state) if is_prng_key(state.rng_key) else jax.vmap(one)(state)

    def wrap_model(self, wrapper):
        """Return a copy of this kernel for `wrapper(model)`."""
        wrapped = copy.copy(self)
        wrapped._model = wrapper(self._model)
        return wrapped

    def postprocess_fn(self, model_args, model_kwargs):
        """Return the function from unconstrained to constrained values and deterministic sites."""
        return self._constrain(model_args, model_kwargs, with_deterministic=True)

    def get_constrain_fn(self, model_args, model_kwargs):
        """Return the function from unconstrained to constrained values."""
        return self._constrain(model_args, model_kwargs, with_deterministic=False)

    def _constrain(self, args, kwargs, with_deterministic):
        model = self._model
        if model is None:
            return lambda z: z
        kwargs = {} if kwargs is None else kwargs

        def constrain(z):
            # A block of Gibbs is asked without the values of the other blocks.
            terms = model_terms(
                model, args, kwargs, z, "unconstrained", is_whole=with_deterministic
            )
            return terms.values | (terms.deterministic if with_deterministic else {})

        return constrain

    def _bind(self, args: tuple, kwargs: dict) -> SamplingAlgorithm:
        """Make the kernel of the posterior given these arguments."""
        if self._model is None:
            potential: Any = self._potential_fn
            return self._make_kernel(lambda position: -potential(position))
        posterior = ModelPosterior.at(self._model, args, kwargs, "unconstrained")
        return self._make_kernel(lambda position: posterior.log_density(self._sites(position)))

    def _start(self, rng_key, init_params, args, kwargs):
        key, key_params, key_kernel = jax.random.split(rng_key, 3)
        z = self._initial(key_params, init_params, args, kwargs)
        return self._state(self._bind(args, kwargs).init(self._position(z), key_kernel), key, None)

    def _initial(self, rng_key, init_params, args, kwargs):
        if self._model is None:
            if init_params is None:
                raise ValueError("a kernel of a potential_fn starts from init_params; give them.")
            return jax.tree.map(jnp.asarray, init_params)
        given = dict(init_params or {})
        if given and GIBBS_SITES_KWARG in kwargs:
            self._check_block(args, kwargs, given)
            return ModelPosterior.at(self._model, args, kwargs, "constrained").unconstrain(given)
        latent = self._latent(args, kwargs)
        unknown = sorted(set(given) - set(latent))
        if unknown:
            raise ValueError(
                f"init_params has a site {unknown[0]!r}, but the model has no such site."
            )
        if set(latent) - set(given):
            drawn = initialize_model(
                rng_key,
                self._model,
                init_strategy=self._init_strategy,
                dynamic_args=True,
                model_args=args,
                model_kwargs=kwargs,
                validate_grad=False,
            )
            given = drawn.param_info.z | given
        check_position(given, tuple(latent.items()))
        return {name: jnp.asarray(given[name]) for name in latent}

    def _check_block(self, args, kwargs, own):
        # The values of other blocks may be traced: all sites are anywhere.
        model: Any = self._model
        alone = {k: v for k, v in kwargs.items() if k != GIBBS_SITES_KWARG}
        with jax.ensure_compile_time_eval():
            check_block(
                functools.partial(traced, model, args, alone), own, kwargs[GIBBS_SITES_KWARG]
            )
        self._traced(args, alone)

    def _latent(self, args, kwargs):
        """Return the shapes of the latent sites' unconstrained values, by name."""
        trace = self._traced(args, kwargs)
        check_sites(trace, "unconstrained")
        return {
            name: bijection(site).inverse_shape(jnp.shape(site["value"]))
            for name, site in trace.items()
            if is_latent(site)
        }

    def _traced(self, args, kwargs):
        """Return the trace of the model somewhere; refuse one with random numbers of its own."""
        model: Any = self._model
        with jax.ensure_compile_time_eval():  # numbers to look at where a parallel chain starts
            trace = traced(model, args, kwargs, anywhere)
        values = {name: site["value"] for name, site in trace.items() if is_latent(site)}
        check_is_a_function(model, args, kwargs, values)
        return trace

    def _position(self, z):
        """Lay the sites' values out as the kernel wants them."""
        if self._layout is None or self._model is None:
            return z
        names = jax.tree.leaves(self._layout)
        if sorted(names) != sorted(z):
            raise ValueError(
                f"layout has the sites {sorted(names)}, but the kernel moves {sorted(z)}; name "
                "each of them once."
            )
        return jax.tree.map(lambda name: z[name], self._layout)

    def _sites(self, position):
        if self._layout is None or self._model is None:
            return position
        names = jax.tree.leaves(self._layout)
        return dict(zip(names, jax.tree.leaves(position), strict=True))

    def _state(self, kernel_state, key, info):
        rate = getattr(info, "acceptance_rate", None)
        rate = jnp.asarray(jnp.nan if rate is None else rate, jnp.result_type(float))
        return NumPyroState(self._sites(kernel_state.position), kernel_state, rate, key)
