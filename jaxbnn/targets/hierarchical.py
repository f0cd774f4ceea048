"""Normal priors whose precisions are learnt: one a parameter array, each with a Gamma prior.

    tau_j ~ Gamma(a, b),    theta_i | tau_j ~ N(0, s_j^2 / tau_j),

j the array of theta_i: a layer's weights, or its biases. The position holds log(tau) beside the
network's parameters, and the densities are densities of log(tau). Marginally the parameters of an
array are jointly Student-t with 2a degrees of freedom and scale s (b / a)^(1/2).

Two coordinates of the same law: centred ones hold theta, non-centred ones z = theta tau^(1/2) / s,
which are standard normal a priori, whatever tau is. Where the data say little of an array, chains
of gradients move better in the second (Papaspiliopoulos, Roberts, Skold 2007).
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree

from jaxbnn.networks import Network
from jaxbnn.numerics.arguments import check_flag, check_type
from jaxbnn.numerics.arrays import float_dtype, widened
from jaxbnn.targets.log_gamma import LogGamma, numbers_of
from jaxbnn.targets.prior_density import prior_log_prob, prior_log_ratio
from jaxbnn.targets.prior_trees import (
    JointPrior,
    is_distribution,
    leaf_shape,
    leaves_and_structure,
    prior_shapes,
    sample_prior,
)
from jaxbnn.targets.priors import Precision, is_bias, normal_prior


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class HierarchicalPrior(JointPrior):
    """What `hierarchical_prior` returns, to be given to `Posterior`; a PyTree.

    Attributes
    ----------
    base
        Normal priors shaped like the network's parameters: those at precisions tau = 1.
    log_precision
        Priors of log(tau), shaped like the parameters too: a number each, or one an input.
    likelihood
        Priors of what the likelihood learns, by name.
    is_centred
        Whether the position holds the parameters themselves.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> prior = hierarchical_prior(mlp((2, 1)), concentration=2.0)
    >>> prior.given({"log_precision": ({"w": jnp.log(4.0), "b": jnp.zeros(())},)})[0]["w"].variance
    Array([[0.25],
           [0.25]], dtype=float32)
    """

    base: PyTree
    log_precision: PyTree
    likelihood: dict[str, Any]
    is_centred: bool = dataclasses.field(default=True, metadata={"static": True})

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parts of a position."""
        return ("network", "log_precision", *self.likelihood)

    def given(self, position: Mapping[str, PyTree]) -> PyTree:
        """Return the network's prior at the precisions of a position: independent normals.

        For kernels that take a prior, on the block of the network:
        `on_block(lambda whole: symmetry_moves(network, prior.given(whole(None))), "network")`.

        Raises
        ------
        ValueError
            If the position is not centred: it does not hold the network's parameters then.
        """
        if not self.is_centred:
            raise ValueError(
                "in the non-centred form the position holds standardised parameters, of which the "
                "network's own prior says nothing; take hierarchical_prior(..., is_centred=True)."
            )
        return self._normals(position)

    def network_parameters(self, position: Mapping[str, PyTree]) -> PyTree:
        """Return the network's parameters at a position, theta."""
        return position["network"] if self.is_centred else self._parameters(position)

    def _parameters(self, position: Mapping[str, PyTree]) -> PyTree:
        """Return theta of standardised parameters."""

        def of_standardised(base, log_precision, z):
            mean, sd = mean_and_sd(base, z.dtype)
            return mean + sd * jnp.exp(-column_of(log_precision, z) / 2) * z

        return self._map(of_standardised, position["log_precision"], position["network"])

    def standardised(self, position: Mapping[str, PyTree], params: PyTree) -> PyTree:
        """Return what a position holds of the network where its parameters are `params`."""
        if self.is_centred:
            return params

        def of_parameters(base, log_precision, theta):
            mean, sd = mean_and_sd(base, theta.dtype)
            return (theta - mean) / sd * jnp.exp(column_of(log_precision, theta) / 2)

        return self._map(of_parameters, position["log_precision"], params)

    def log_prob(self, position: Mapping[str, PyTree]) -> Float[Array, ""]:
        """Return the log density of a position, of log(tau) where it holds log(tau)."""
        return prior_log_prob(self._independent(position), position)

    def log_ratio(self, reference: Mapping[str, PyTree]) -> Any:
        """Return position -> log_prob(position) - log_prob(reference), without cancellation."""
        if not self.is_centred:
            return prior_log_ratio(self._independent(reference), reference)

        def ratio(position):
            # The density at the position's precisions, from reference to position; then from the
            # reference's precisions to the position's, where the parameters are the reference's.
            moved = prior_log_ratio(self._independent(position), reference)(position)
            rescaled = self._map(
                _log_ratio_of_precisions,
                position["log_precision"],
                reference["log_precision"],
                reference["network"],
            )
            return moved + sum(jax.tree.leaves(rescaled))

        return ratio

    def sample(self, rng_key: PRNGKeyArray) -> dict[str, PyTree]:
        """Return one draw of a position."""
        key_own, key_precision, key_network = jax.random.split(rng_key, 3)
        position = {
            "network": self._sample_standardised(key_network),
            "log_precision": self._sample_precisions(key_precision),
            **sample_prior(key_own, self.likelihood),
        }
        return position | {"network": self._parameters(position)} if self.is_centred else position

    # All numbers at once: a program that draws those of each array by themselves compiles for long.
    def _sample_standardised(self, key: PRNGKeyArray) -> PyTree:
        zeros, whole = ravel_pytree(self._map(lambda base: jnp.zeros(base.event_shape)))
        return whole(jax.random.normal(key, zeros.shape, zeros.dtype))

    def _sample_precisions(self, key: PRNGKeyArray) -> PyTree:
        laws, structure = jax.tree.flatten(self.log_precision, is_leaf=is_distribution)
        concentration, rate = zip(*(numbers_of(law, float) for law in laws), strict=True)
        zeros = [jnp.zeros(law.shape()) for law in laws]
        a, apart = ravel_pytree(
            [z + number for z, number in zip(zeros, concentration, strict=True)]
        )
        log_tau = apart(jax.random.loggamma(key, a))
        drawn = [u - jnp.log(number) for u, number in zip(log_tau, rate, strict=True)]
        return jax.tree.unflatten(structure, drawn)

    def shapes(self) -> dict[str, PyTree]:
        """Return the shapes of a position."""
        return prior_shapes(
            {"network": self.base, "log_precision": self.log_precision, **self.likelihood}
        )

    def why_refused(self) -> str:
        """Return a sentence for whoever needs the network's parameters to be independent."""
        return (
            "a hierarchical prior ties the network's parameters to their precisions; give the "
            "network's prior at the precisions of a position, prior.given(position), as on_block "
            "does, or a prior of fixed precisions, such as normal_prior(network)."
        )

    def _independent(self, position: Mapping[str, PyTree]) -> dict[str, PyTree]:
        normals = self._normals(position) if self.is_centred else self._standard()
        return {"network": normals, "log_precision": self.log_precision, **self.likelihood}

    def _normals(self, position: Mapping[str, PyTree]) -> PyTree:
        def normal(base, log_precision):
            shape = base.event_shape
            log_precision = widened(log_precision)
            mean, sd = mean_and_sd(base, log_precision.dtype)
            sd = sd * jnp.exp(-column_of(log_precision, sd) / 2)
            sd = jnp.broadcast_to(sd, shape) if sd.ndim else sd
            return dist.Normal(mean, sd).expand(shape).to_event()

        return self._map(normal, position["log_precision"])

    def _standard(self) -> PyTree:
        return self._map(lambda base: dist.Normal(0.0, 1.0).expand(base.event_shape).to_event())

    def _map(self, function: Any, *trees: PyTree) -> PyTree:
        return jax.tree.map(function, self.base, *trees, is_leaf=is_distribution)


def hierarchical_prior(
    network_or_params: Network | PyTree,
    *,
    concentration: ArrayLike = 1.0,
    rate: ArrayLike = 1.0,
    weight_precision: Precision = 1.0,
    bias_precision: Precision = 1.0,
    relevance: bool = False,
    is_centred: bool = True,
    likelihood: Mapping[str, dist.Distribution] | None = None,
) -> HierarchicalPrior:
    """Return normal priors with learnt precisions, one an array: weights and biases apart.

    tau_j ~ Gamma(concentration, rate), theta_i ~ N(0, 1 / (precision_j tau_j)) for the parameters
    i of array j. The position is {"network": ..., "log_precision": ...}, the second shaped like
    the network's parameters with a number for each array.

    Parameters
    ----------
    network_or_params
        As in `normal_prior`.
    concentration, rate
        a, b > 0, a number each: of tau; may be traced. At a = b = 1 the factor tau^(-1/2) on the
        standard deviations has median 1.2 and lies in (.58, 4.4) with probability .9.
    weight_precision, bias_precision
        As in `normal_prior`: the precisions at tau = 1. One a layer keeps the scales of wide
        layers right, `weight_precision=[fan_in, ...]`.
    relevance
        Whether each input has a precision of its own in the first layer, of shape (d_in,): inputs
        of no use get a large one (MacKay 1994, Neal 1996).
    is_centred
        True: the position's "network" holds the parameters. False: it holds them standardised,
        theta = tau^(-1/2) z / precision^(1/2).
    likelihood
        Priors of the likelihood's own parameters by name, such as
        {"log_noise_scale": LogGamma(1.0, 0.1, exponent=-0.5)}.

    Returns
    -------
    The prior, for `Posterior(network, prior, likelihood, x, y)`.

    Raises
    ------
    ValueError
        If a precision, the concentration or the rate is not positive, or one of the last two is
        not one number; if relevance is asked for and the first weights are not a matrix.
    TypeError
        If a prior of the likelihood's is no distribution, or a flag is not True or False.

    Notes
    -----
    Kernels of a log density (NUTS, MALA, `underdamped_langevin`, `smmala`) take such a posterior as
    it is, and `prior_precisions` draws the precisions beside them. `symmetry_moves` and
    `redraw_units` move the network given the precisions, by `HierarchicalPrior.given`; the Gibbs
    sampler, `wide`, DVI and `gauss_newton_metric` have Gaussian priors and refuse this one.

    Neal (1996), Bayesian Learning for Neural Networks, section 3.2.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> from jaxbnn.targets import Bernoulli, Posterior
    >>> prior = hierarchical_prior(mlp((3, 4, 1)), relevance=True)
    >>> x, y = jnp.ones((5, 3)), jnp.array([0, 1, 0, 1, 1])
    >>> posterior = Posterior(mlp((3, 4, 1)), prior, Bernoulli(), x, y)
    >>> position = posterior.sample_prior(jax.random.key(0))
    >>> position["log_precision"][0]["w"].shape, position["log_precision"][0]["b"].shape
    ((3,), ())
    """
    check_flag("relevance", relevance)
    check_flag("is_centred", is_centred)
    for name, value in (("concentration", concentration), ("rate", rate)):
        if np.ndim(value):
            raise ValueError(
                f"{name} must be one number, for all precisions, but has shape {np.shape(value)}; "
                "give weight_precision and bias_precision one number a layer instead."
            )
    base = normal_prior(
        network_or_params, weight_precision=weight_precision, bias_precision=bias_precision
    )
    leaves, structure = leaves_and_structure(network_or_params)
    first = next((i for i, (path, _) in enumerate(leaves) if not is_bias(path)), None)
    if relevance and (first is None or len(leaf_shape(leaves[first][1])) != 2):
        raise ValueError(
            "relevance needs first weights of shape (d_in, d_out), a row for each input, but this "
            "network has none; leave it out."
        )
    own = []
    for i, (_, leaf) in enumerate(leaves):
        law = LogGamma(concentration, rate)
        inputs = leaf_shape(leaf)[:1] if relevance and i == first else ()
        own.append(law.expand(inputs).to_event() if inputs else law)
    if likelihood is not None:
        check_type("likelihood", likelihood, Mapping, "write {name: distribution}")
    more = dict(likelihood or {})
    for name, law in more.items():
        if not is_distribution(law):
            raise TypeError(
                f"likelihood[{name!r}] must be a NumPyro distribution, but is of type "
                f"{type(law).__name__}; give one, for instance numpyro.distributions.Normal(0, 1)."
            )
    more = {n: d.to_event(len(d.batch_shape)) if d.batch_shape else d for n, d in more.items()}
    return HierarchicalPrior(base, jax.tree.unflatten(structure, own), more, is_centred)


def mean_and_sd(base: Any, dtype: Any) -> tuple[Array, Array]:
    """Return mean and standard deviation of a normal prior, one number where all are the same.

    Examples
    --------
    >>> mean, sd = mean_and_sd(dist.Normal(0.0, 2.0).expand((3,)).to_event(), jnp.float32)
    >>> float(mean), float(sd)
    (0.0, 2.0)
    """
    while isinstance(base, dist.Independent | dist.ExpandedDistribution):
        base = base.base_dist
    dtype = _real(dtype)
    return jnp.asarray(base.loc, dtype), jnp.asarray(base.scale, dtype)


def _real(dtype: Any) -> Any:
    """Return the type itself if it is floating point, else one that holds fractions."""
    return dtype if jnp.issubdtype(dtype, jnp.floating) else float_dtype(dtype)


def column_of(log_precision: ArrayLike, like: Any) -> Array:
    """Return a precision an input as a column, ready to multiply weights (d_in, d_out).

    Examples
    --------
    >>> column_of(jnp.zeros(3), jnp.zeros((3, 2))).shape, column_of(0.0, jnp.zeros(2)).shape
    ((3, 1), ())
    """
    array = jnp.asarray(log_precision, _real(like.dtype))
    return array[:, None] if array.ndim else array


def squares_of(base: Any, theta: Array, log_precision: ArrayLike) -> tuple[Array, int]:
    """Return the sums of squares of theta / s that each precision governs, and of how many.

    Examples
    --------
    >>> base = dist.Normal(0.0, 2.0).expand((3, 2)).to_event()
    >>> squares, count = squares_of(base, jnp.ones((3, 2)), jnp.zeros(3))
    >>> squares.tolist(), count
    ([0.5, 0.5, 0.5], 2)
    """
    mean, sd = mean_and_sd(base, theta.dtype)
    squares = jnp.square((theta - mean) / sd)
    if np.ndim(log_precision):
        return jnp.sum(squares, axis=1), theta.shape[1]
    return jnp.sum(squares), theta.size


def _log_ratio_of_precisions(base: Any, new: Array, old: Array, theta: Array) -> Array:
    new, old, theta = (widened(value) for value in (new, old, theta))
    squares, count = squares_of(base, theta, old)
    difference = new - old
    return jnp.sum(0.5 * count * difference - 0.5 * squares * jnp.exp(old) * jnp.expm1(difference))
