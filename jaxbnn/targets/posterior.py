"""The posterior of a network's parameters: what the kernels are given."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree, Shaped
from numpyro.distributions import Distribution

from jaxbnn.networks import Network, apply
from jaxbnn.numerics import check_real, is_concrete, sum_of_differences
from jaxbnn.numerics.arguments import check_key, check_word
from jaxbnn.numerics.arrays import as_array, widened
from jaxbnn.numerics.checks import check_shape
from jaxbnn.numerics.data import finite_array, warn_of_rounded_inputs
from jaxbnn.targets.likelihoods import Likelihood, check_learned, check_likelihood
from jaxbnn.targets.padding import pad_rows
from jaxbnn.targets.positions import layout, part_names, position_shapes, whose_parts
from jaxbnn.targets.powers import powered, powered_likelihood, still_at_zero
from jaxbnn.targets.prior_density import prior_log_prob, prior_log_ratio
from jaxbnn.targets.prior_trees import JointPrior, expand_prior, sample_prior
from jaxbnn.targets.rounding import as_computed

Scalar = Float[Array, ""]


@jax.tree_util.register_pytree_node_class
@dataclass(frozen=True, eq=False, init=False)
class Posterior:
    """log p(params | x, y) = sum_i log p(y_i | x_i, params) + log p(params), up to a constant.

    A PyTree: prior, likelihood, data and powers have leaves, the network is static. It may
    therefore be an argument of a jitted function, or the `data` of a runner.

    Parameters
    ----------
    network
        A `Network`, or any function (params, x) -> outputs of shape (n, k) or (n,).
    prior
        A PyTree of NumPyro distributions shaped like the parameters. With a `Network` it may be
        shorter, and is expanded by `expand_prior`: `dist.Normal(0, 1)` stands for everything.
        With `LearnedGaussian`, {"network": prior, "log_noise_scale": distribution}. Or a
        `hierarchical_prior`.
    likelihood
        `Gaussian(...)`, `Categorical()` or another, also of your own.
    x, y
        Data of shapes (n, ...), n > 0. Labels are integers for `Categorical`, 0 or 1 for
        `Bernoulli`. May be traced; then only shapes and dtypes are checked. Whole numbers beyond
        JAX's integers, of 32 bits without jax_enable_x64, are kept as floats.

    Raises
    ------
    ValueError
        If the data hold NaN or infinities, or numbers beyond JAX's floats; their lengths differ, a
        label is out of range, the network's output does not fit the likelihood, or the prior is not
        shaped like the parameters, or like what the likelihood learns.
    TypeError
        If labels are not integers, a leaf of the prior is no distribution, the network is neither a
        `Network` nor a function, or the likelihood is not a `Likelihood`.

    Warns
    -----
    UserWarning
        Inputs, or targets with noise, so large that float32 rounds what varies in them.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> from jaxbnn.targets import Gaussian, normal_prior
    >>> network = mlp((1, 1))
    >>> posterior = Posterior(
    ...     network, normal_prior(network), Gaussian(1.0), jnp.ones((2, 1)), jnp.zeros((2, 1))
    ... )
    >>> params = ({"w": jnp.ones((1, 1)), "b": jnp.zeros(1)},)
    >>> round(float(posterior.log_density(params)), 4)  # 4 log N(0|0,1) - 3 / 2
    -5.1758
    """

    network: Network | Callable
    prior: PyTree
    likelihood: Likelihood
    x: Array
    y: Array
    likelihood_power: ArrayLike | None
    prior_power: ArrayLike | None

    def __init__(
        self,
        network: Network | Callable,
        prior: PyTree,
        likelihood: Likelihood,
        x: Shaped[ArrayLike, "..."],
        y: Shaped[ArrayLike, "..."],
    ):
        _check_network(network)
        check_likelihood(likelihood)
        _check_rows(x, y)
        kept_x, kept_y = finite_array("x", x), finite_array("y", y)
        dtype = _position_dtype(kept_x)
        shapes = position_shapes(network, prior, likelihood)
        own = {name: getattr(shapes[name], "shape", None) for name in likelihood.learned}
        check_learned(likelihood, own, np.shape(y)[1:])
        if not isinstance(prior, JointPrior):
            prior = expand_prior(prior, shapes)
        _set(self, network, prior, likelihood, kept_x, kept_y, None, None)
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, dtype), shapes)
        outputs = _outputs_shape(self, shapes)
        likelihood.check(outputs, as_computed(y, dtype))
        warn_of_rounded_inputs(x, dtype)

    def log_prior(self, params: PyTree) -> Scalar:
        """Return the log prior density, -inf outside the prior's support."""
        return powered(self.prior_power, prior_log_prob(self.prior, params))

    def log_likelihood(self, params: PyTree) -> Float[Array, " n"]:
        """Return the log-likelihood terms, one per datum."""
        power = self.likelihood_power
        return powered_likelihood(power, self._terms(still_at_zero(power, params)))

    def log_density(self, params: PyTree) -> Scalar:
        """Return log_prior + sum of log_likelihood, the log posterior up to a constant.

        In float32 and with more than a few thousand data, use `log_density_from`.
        """
        power = self.likelihood_power
        likelihood = powered_likelihood(power, self._total(still_at_zero(power, params)))
        return likelihood + self.log_prior(params)

    def log_density_from(self, reference: PyTree) -> Callable[[PyTree], Scalar]:
        """Return the function params -> log_density(params) - log_density(reference).

        It is a sum of per-datum and per-parameter differences, so that it keeps its precision in
        float32 where two totals would cancel, as long as params are near the reference: give it to
        kernels that subtract log densities (HMC, NUTS, MALA). What depends on the reference alone
        is computed once, here.

        Parameters
        ----------
        reference
            Parameters where the log density is finite, a chain's initial position for instance.

        Examples
        --------
        >>> from jaxbnn.networks import mlp
        >>> from jaxbnn.targets import Gaussian, normal_prior
        >>> x, y = jnp.ones((2, 1)), jnp.zeros((2, 1))
        >>> posterior = Posterior(mlp((1, 1)), normal_prior(mlp((1, 1))), Gaussian(1.0), x, y)
        >>> log_density = posterior.log_density_from(({"w": jnp.ones((1, 1)), "b": jnp.zeros(1)},))
        >>> float(log_density(({"w": jnp.zeros((1, 1)), "b": jnp.zeros(1)},)))
        1.5
        """
        power = self.likelihood_power
        # As the other ones, so that at the reference both are the same to the last bit.
        reference_terms = self._terms(still_at_zero(power, reference))
        prior_ratio = prior_log_ratio(self.prior, reference)

        def log_density(params):
            terms = self._terms(still_at_zero(power, params))
            likelihood_ratio = sum_of_differences(terms, reference_terms)
            return powered_likelihood(power, likelihood_ratio) + powered(
                self.prior_power, prior_ratio(params)
            )

        return log_density

    def tempered(
        self, t: ArrayLike, what: Literal["likelihood", "posterior"] = "likelihood"
    ) -> "Posterior":
        """Return the posterior with its likelihood, or all of it, raised to the power t.

        Parameters
        ----------
        t
            The power, t >= 0; may be traced. Powers of powers multiply. To the power 0 the
            likelihood is 1 where it is zero, too: what is left is the prior.
        what
            "likelihood": p(y | x, params)^t p(params), the power posterior. "posterior":
            (p(y | x, params) p(params))^t.

        Raises
        ------
        ValueError
            If t is negative, not finite or not one number, or `what` is neither of the two.
        TypeError
            If t is not a real number.

        Examples
        --------
        >>> from jaxbnn.networks import mlp
        >>> from jaxbnn.targets import Gaussian, normal_prior
        >>> x, y = jnp.ones((2, 1)), jnp.zeros((2, 1))
        >>> posterior = Posterior(mlp((1, 1)), normal_prior(mlp((1, 1))), Gaussian(1.0), x, y)
        >>> params = ({"w": jnp.ones((1, 1)), "b": jnp.zeros(1)},)
        >>> cold = posterior.tempered(0.5, what="posterior")
        >>> float(cold.log_density(params) / posterior.log_density(params))
        0.5
        """
        check_word("what", what, ("likelihood", "posterior"))
        check_real("t", t)
        if np.ndim(t):
            raise ValueError(f"t must be one power, but has shape {np.shape(t)}; map over several.")
        if is_concrete(t) and not (np.isfinite(t) and np.asarray(t) >= 0):
            raise ValueError(
                f"t must be a finite power, zero or more, but is {t}; 1 is the posterior."
            )
        fields = self._fields()
        fields[-2] = _times(self.likelihood_power, t)
        if what == "posterior":
            fields[-1] = _times(self.prior_power, t)
        return _set(object.__new__(Posterior), *fields)

    def with_data(self, x: Shaped[ArrayLike, "..."], y: Shaped[ArrayLike, "..."]) -> "Posterior":
        """Return the posterior of the same model given other data, a part of the rows say.

        Parameters
        ----------
        x, y
            Laid out as this posterior's, with any number of rows; may be traced. Values are not
            looked at.

        Raises
        ------
        ValueError
            If x or y has other axes after the first than this posterior's, or their numbers of
            rows differ.

        Examples
        --------
        >>> from jaxbnn.networks import mlp
        >>> from jaxbnn.targets import Gaussian, normal_prior
        >>> x, y = jnp.ones((3, 1)), jnp.zeros((3, 1))
        >>> posterior = Posterior(mlp((1, 1)), normal_prior(mlp((1, 1))), Gaussian(1.0), x, y)
        >>> posterior.with_data(x[:2], y[:2]).x.shape
        (2, 1)
        """
        x, y = as_array(x), as_array(y)
        for name, ours, other in (("x", self.x, x), ("y", self.y, y)):
            if other.shape[1:] != ours.shape[1:] or other.ndim != ours.ndim:
                raise ValueError(
                    f"{name} has shape {other.shape}, but this posterior's has {ours.shape}; only "
                    "the number of rows may differ."
                )
        if len(x) != len(y):
            raise ValueError(f"x has {len(x)} rows and y has {len(y)}; give one target per datum.")
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return _set(object.__new__(Posterior), *(fields | {"x": x, "y": y}).values())

    def sample_prior(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> PyTree:
        """Return draws from the prior, in x's dtype, with `shape` before each parameter's own.

        The powers of `tempered` are ignored.

        Raises
        ------
        TypeError
            No key; a shape that is no tuple.
        """
        check_key("key", key)
        check_shape("shape", shape)
        dtype = _position_dtype(self.x)
        drawn = sample_prior(key, self.prior, tuple(shape))
        return jax.tree.map(lambda leaf: leaf.astype(dtype), drawn)

    def predictive(self, params: PyTree, x: Shaped[ArrayLike, "..."]) -> Distribution:
        """Return the NumPyro distribution of the targets at x given one set of parameters.

        Its batch shape is (n,) and its event is laid out like a row of y: a number where y is
        (n,), shape (k,) where y is (n, k). Hence `predictive(params, x).log_prob(y)` are the
        log-likelihood terms, up to rounding, but for temperatures and powers, which a predictive
        does not have.
        """
        _, likelihood = self._split(params)
        return likelihood.predictive(self.outputs(params, x), self.y.ndim)

    def outputs(self, params: PyTree, x: Shaped[ArrayLike, "..."]) -> Array:
        """Return the network's outputs at x, shape (n, ...); params as in `log_density`."""
        network_params, _ = self._split(params)
        if isinstance(self.network, Network):
            return apply(self.network, network_params, as_array(x))
        return self.network(network_params, as_array(x))

    def tree_flatten(self) -> tuple[tuple, Any]:
        """Split into leaves and the static network."""
        network, *leaves = self._fields()
        return tuple(leaves), network

    @classmethod
    def tree_unflatten(cls, network: Any, leaves: tuple) -> "Posterior":
        """Rebuild without checks: JAX passes placeholders too."""
        return _set(object.__new__(cls), network, *leaves)

    def _fields(self) -> list:
        return [getattr(self, name) for name in self.__dataclass_fields__]

    def _split(self, params: PyTree) -> tuple[PyTree, Likelihood]:
        """Return the network's parameters, and the likelihood at its own."""
        likelihood, prior = self.likelihood, self.prior
        names = part_names(prior, likelihood)
        if not names:
            return params, likelihood
        if not isinstance(params, dict) or set(params) != set(names):
            raise ValueError(
                f"with {whose_parts(prior, likelihood)}, parameters are "
                f"{layout(names, 'params')}, but they are {jax.tree.structure(params)}."
            )
        _check_real_parts(params, likelihood.learned)
        is_joint = isinstance(prior, JointPrior)
        own = prior.network_parameters(params) if is_joint else params["network"]
        return own, likelihood.given({name: params[name] for name in likelihood.learned})

    def _terms(self, params: PyTree) -> Float[Array, " n"]:
        return self._terms_at(params, self.x, self.y)

    def _terms_at(self, params: PyTree, x: Array, y: Array) -> Float[Array, " n"]:
        _, likelihood = self._split(params)
        return likelihood.log_prob(self.outputs(params, x), y)

    def _total(self, params: PyTree) -> Scalar:
        """Sum the log-likelihood terms."""
        if not isinstance(self.network, Network):  # its rows might not be independent
            return jnp.sum(widened(self._terms(params)))
        x, y, is_datum = pad_rows(self.x, self.y)
        terms = widened(self._terms_at(params, x, y))
        return jnp.sum(terms if is_datum is None else jnp.where(is_datum, terms, 0))


def _check_real_parts(params: dict[str, Any], names: Iterable[str]) -> None:
    for name in names:
        check_real(f"params[{name!r}]", params[name])


def _set(posterior: Posterior, *fields: Any) -> Posterior:
    for name, value in zip(posterior.__dataclass_fields__, fields, strict=True):
        object.__setattr__(posterior, name, value)
    return posterior


def _times(power: ArrayLike | None, t: ArrayLike) -> ArrayLike:
    return t if power is None else power * t


def _check_network(network: object) -> None:
    if not (isinstance(network, Network) or callable(network)):
        raise TypeError(
            "network must be a Network or a function (params, x) -> outputs, but is of type "
            f"{type(network).__name__}; the order is Posterior(network, prior, likelihood, x, y)."
        )


def _check_rows(x: ArrayLike, y: ArrayLike) -> None:
    if np.ndim(x) == 0 or np.ndim(y) == 0:
        raise ValueError(
            f"x and y must have a leading data axis, but have shapes {np.shape(x)} and "
            f"{np.shape(y)}; write x[None] for one datum."
        )
    if np.shape(x)[0] != np.shape(y)[0] or np.shape(x)[0] == 0:
        raise ValueError(
            f"x and y must have the same number of rows, at least one, but x has {np.shape(x)[0]} "
            f"and y has {np.shape(y)[0]}; give one target per datum."
        )


def _position_dtype(x: ArrayLike) -> Any:
    """Positions have the precision of the data."""
    dtype = jax.dtypes.canonicalize_dtype(jnp.result_type(x))
    return dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.result_type(float)


def _outputs_shape(posterior: Posterior, shapes: PyTree) -> tuple[int, ...]:
    """Return the shape of the network's outputs at the data; nothing is computed."""
    try:
        outputs = jax.eval_shape(posterior.outputs, shapes, posterior.x)
    except Exception as error:
        if isinstance(posterior.network, Network):
            raise
        lines = str(error).strip().splitlines()
        reason = ": ".join([type(error).__name__, *lines[:1]]).rstrip(".")
        raise ValueError(
            f"the network cannot be applied to x and parameters shaped like the prior ({reason}); "
            "give every distribution its parameter's shape, for instance by "
            "expand_prior(prior, params)."
        ) from error
    shape = getattr(outputs, "shape", None)
    rows = posterior.x.shape[0]
    if not shape or shape[0] != rows:
        raise ValueError(
            f"the network must return an array with one row per datum, shape ({rows}, ...), but "
            f"returns {outputs if shape is None else f'shape {shape}'}; map it over the data."
        )
    return shape
