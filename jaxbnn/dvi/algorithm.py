"""Variational inference for a network as BlackJAX's triple init, step, sample, with elbo, predict.

    ELBO(q) = E_q[sum_i log p(y_i | x_i, w)] - KL(q || prior)

by moment propagation (DVI, dDVI) or by draws (MCVI, rMCVI), for the same models and priors.
"""

from collections.abc import Callable
from typing import NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
import optax
from blackjax.base import VIAlgorithm
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray, PyTree, Shaped

from jaxbnn.dvi.divergence import EmpiricalBayes
from jaxbnn.dvi.expected import Expectation
from jaxbnn.dvi.families import draw_weights
from jaxbnn.dvi.model import Method, VariationalModel, VIInfo
from jaxbnn.dvi.moments import Rule, check_rule
from jaxbnn.networks import Network, output_shape
from jaxbnn.numerics import check_count, check_finite, check_real, is_concrete
from jaxbnn.numerics.arguments import check_optimizer, check_word
from jaxbnn.targets import Likelihood
from jaxbnn.targets.likelihoods import check_likelihood

Scalar = Float[Array, ""]


class VIState(NamedTuple):
    """State of `deterministic_vi`.

    Attributes
    ----------
    position
        q's parameters.
    optimizer_state
        Optax's.
    num_updates
        How many were made.
    """

    position: PyTree
    optimizer_state: PyTree
    num_updates: Int[Array, ""]


class DeterministicVI(VIAlgorithm):
    """BlackJAX's `VIAlgorithm(init, step, sample)` with further functions.

    Attributes
    ----------
    init
        (position) -> `VIState`; the position is q, as `initial_position` draws it.
    step
        (rng_key, state, x, y, num_data=None) -> (state, `VIInfo`): one update. With a minibatch,
        num_data is the number of all data.
    sample
        (rng_key, state, num_samples=1) -> parameters with that leading axis, shaped like the
        network's, or the position's of `LearnedGaussian`: they go where MCMC draws go. With
        `output_scale` or `output_shift` that is a `Posterior` of `apply`, not of the network.
    apply
        (params, x) -> outputs as the likelihood sees them: the network's, scaled and shifted.
    elbo
        (position, x, y, rng_key=None, num_data=None) -> `VIInfo`.
    predict
        (position, x, *, rank=1, density=None, rng_key=None, num_samples=1000, num_nodes=32) ->
        NumPyro distribution of the targets; see `predictive`. rank is that of y: targets (n, 1)
        need rank=2, or y[:, 0], since NumPyro's `log_prob` broadcasts them against (n,) to (n, n).
        Monte Carlo methods mix over draws of the weights, always.
    check
        (x, y): raises if the data do not fit the network and the likelihood.
    """

    elbo: Callable
    predict: Callable
    check: Callable
    apply: Callable

    def __new__(cls, init, step, sample, elbo, predict, check, apply=None):  # noqa: D102
        self = super().__new__(cls, init, step, sample)
        self.elbo, self.predict, self.check, self.apply = elbo, predict, check, apply
        return self


def deterministic_vi(
    network: Network,
    likelihood: Likelihood,
    prior: PyTree | EmpiricalBayes,
    *,
    method: Method = "dvi",
    optimizer: optax.GradientTransformation | None = None,
    kl_weight: ArrayLike | Callable = 1.0,
    moments: Rule = "exact",
    num_nodes: int | None = None,
    expectation: Expectation = "closed_form",
    num_samples: int = 10,
    output_scale: ArrayLike = 1.0,
    output_shift: ArrayLike = 0.0,
) -> DeterministicVI:
    """Variational inference with a Gaussian q, deterministic or by Monte Carlo.

    Parameters
    ----------
    network
        For "dvi", "ddvi" and "rmcvi" of Dense, Activation and Residual layers on vectors; for
        "mcvi" any.
    likelihood
        See `expected_log_likelihood` for what has a closed form.
    prior
        `empirical_bayes(...)`, or NumPyro normals and Laplaces shaped like the parameters or
        shorter. With `LearnedGaussian`, {"network": prior, "log_noise_scale": distribution}.
    method
        "dvi": full covariances of the activations. "ddvi": variances only. "mcvi": draws of the
        weights. "rmcvi": draws of the activations (local reparametrisation).
    optimizer
        Any of Optax, a schedule and clipping included: it minimises -ELBO / num_data, so that
        `optax.clip` is in nats a datum. By default `optax.adam(1e-3)`.
    kl_weight
        Weight of the divergence in the objective: a number, or a function of the number of
        updates made (an Optax schedule).
    moments, num_nodes
        Rule for covariances of activations and its nodes; see `activation_moments`. Few nodes
        serve for training; q may then be evaluated by an algorithm with more.
    expectation, num_samples
        "monte_carlo" replaces the closed form of the expected log likelihood by draws of the
        outputs. num_samples is also the number of draws of "mcvi" and "rmcvi".
    output_scale, output_shift
        Numbers, or one an output: the network's outputs are multiplied by one, then the other is
        added, before the likelihood sees them. Draws of `sample` are the network's own parameters:
        give them to a `Posterior` of `vi.apply`, which scales and shifts as well.

    Returns
    -------
    `DeterministicVI`, a `VIAlgorithm` with `elbo`, `predict`, `check` and `apply`.

    Raises
    ------
    TypeError
        A network that is a function; a likelihood that is not a `Likelihood`; a prior that is
        neither normal nor Laplace.
    ValueError
        An unknown method, rule or number of draws or nodes; a scale or shift that is not one an
        output; a prior that is not shaped like the parameters. What the data have wrong is said
        when they meet the network.

    Notes
    -----
    Source: Wu et al., with errata C1 to C7. `fit` runs it.

    Examples
    --------
    >>> from jaxbnn.dvi import empirical_bayes, initial_position
    >>> from jaxbnn.networks import mlp
    >>> from jaxbnn.targets import HeteroscedasticGaussian
    >>> network = mlp((1, 20, 2))
    >>> vi = deterministic_vi(network, HeteroscedasticGaussian(), empirical_bayes())
    >>> state = vi.init(initial_position(jax.random.key(0), network))
    >>> x, y = jnp.ones((5, 1)), jnp.zeros(5)
    >>> state, info = jax.jit(vi.step)(jax.random.key(1), state, x, y)
    >>> int(state.num_updates), bool(info.elbo < info.expected_log_likelihood)
    (1, True)
    """
    if not isinstance(network, Network):
        raise TypeError(
            "deterministic_vi propagates moments through the layers of a Network, such as "
            f"mlp((4, 20, 1)), but was given a {type(network).__name__}; sample the posterior of a "
            "function by MCMC."
        )
    check_likelihood(likelihood)
    _check_options(method, expectation, num_samples, kl_weight)
    check_rule(moments, num_nodes, "moments")
    check_real("output_scale", output_scale)
    check_real("output_shift", output_shift)
    for name, value in (("output_scale", output_scale), ("output_shift", output_shift)):
        _check_affine(name, value, output_shape(network))
    optimizer = optax.adam(1e-3) if optimizer is None else optimizer
    check_optimizer(optimizer)

    model = VariationalModel(
        network,
        likelihood,
        prior,
        method=method,
        moments=moments,
        num_nodes=num_nodes,
        expectation=expectation,
        num_samples=num_samples,
        output_scale=output_scale,
        output_shift=output_shift,
    )

    def init(position: PyTree) -> VIState:
        return VIState(position, optimizer.init(position), jnp.zeros((), jnp.int32))

    def step(
        rng_key: PRNGKeyArray,
        state: VIState,
        x: Shaped[Array | np.ndarray, "n *input"],
        y: Shaped[Array | np.ndarray, "n *columns"],
        num_data: ArrayLike | None = None,
    ) -> tuple[VIState, VIInfo]:
        weight = kl_weight(state.num_updates) if callable(kl_weight) else kl_weight

        def loss(position: PyTree) -> tuple[Scalar, VIInfo]:
            info = model.elbo(position, x, y, rng_key, num_data)
            dtype = info.kl.dtype
            count = jnp.asarray(x.shape[0] if num_data is None else num_data, dtype)
            objective = info.expected_log_likelihood - jnp.asarray(weight, dtype) * info.kl
            return -objective / count, info

        (_, info), gradient = jax.value_and_grad(loss, has_aux=True)(state.position)
        updates, optimizer_state = optimizer.update(gradient, state.optimizer_state, state.position)
        position = optax.apply_updates(state.position, updates)
        return VIState(position, optimizer_state, state.num_updates + 1), info

    def sample(rng_key: PRNGKeyArray, state: VIState, num_samples: int = 1) -> PyTree:
        check_count("num_samples", num_samples, least=0)
        keys = jax.random.split(rng_key, num_samples)
        return jax.vmap(lambda key: _draw_position(key, state.position))(keys)

    return DeterministicVI(init, step, sample, model.elbo, model.predict, model.check, model.apply)


def _draw_position(rng_key: PRNGKeyArray, position: PyTree) -> PyTree:
    if not isinstance(position, dict):
        return draw_weights(rng_key, position)
    keys = jax.random.split(rng_key, len(position))
    return {
        name: draw_weights(key, position[name])
        for name, key in zip(sorted(position), keys, strict=True)
    }


def _check_options(method, expectation, num_samples, kl_weight) -> None:
    check_word("method", method, get_args(Method))
    check_word("expectation", expectation, get_args(Expectation))
    check_count("num_samples", num_samples)
    if callable(kl_weight):
        return
    check_real("kl_weight", kl_weight)
    if jnp.ndim(kl_weight) != 0:
        raise ValueError(
            "kl_weight must be a number or a function of the number of updates, but has shape "
            f"{jnp.shape(kl_weight)}."
        )
    check_finite("kl_weight", kl_weight, "give 0 or a positive number")
    if is_concrete(kl_weight) and np.asarray(kl_weight) < 0:
        raise ValueError(f"kl_weight must not be negative, but is {float(kl_weight):g}.")


def _check_affine(name: str, value: ArrayLike, outputs: tuple[int, ...]) -> None:
    check_finite(name, value, "give a number, or one an output")
    if jnp.ndim(value) != 0 and jnp.shape(value) != outputs:
        raise ValueError(
            f"{name} has shape {jnp.shape(value)} for outputs of shape {outputs}; give a number, "
            "or one an output."
        )
