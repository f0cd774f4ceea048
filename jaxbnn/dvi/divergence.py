"""KL(q || prior) in closed form: Gaussian, Laplace and empirical-Bayes priors.

For priors of independent weights, KL = -sum_i E_q[log p(w_i)] - H(q) needs only the means and
variances of the single weights, whatever correlations q has.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.tree_util import keystr, tree_leaves_with_path
from jaxtyping import Array, ArrayLike, Float, PyTree

from jaxbnn.dvi.families import Family, check_q, entropy, moments_of
from jaxbnn.dvi.moments import deviation_of
from jaxbnn.dvi.partition import frozen, set_numbers, sums_of_sets, value_of_sets
from jaxbnn.dvi.standard_normal import normal_cdf
from jaxbnn.numerics import check_positive
from jaxbnn.numerics.arguments import check_flag
from jaxbnn.numerics.arrays import widened
from jaxbnn.numerics.tails import normal_density
from jaxbnn.targets import expand_prior
from jaxbnn.targets.prior_trees import is_distribution

Scalar = Float[Array, ""]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class EmpiricalBayes:
    """A prior N(0, s) whose variance s, one a set of weights, is fitted; see `empirical_bayes`.

    Attributes
    ----------
    alpha, beta
        Of the inverse gamma hyperprior.
    partition
        Which weights share a variance.
    include_hyperprior
        Whether -log p(s) is part of the divergence.
    """

    alpha: Any
    beta: Any
    partition: Any = field(metadata={"static": True})
    include_hyperprior: bool = field(metadata={"static": True})


def empirical_bayes(
    alpha: ArrayLike = 1.0,
    beta: PyTree = 10.0,
    *,
    partition: Literal["tensor", "layer", "all"] | PyTree = "tensor",
    include_hyperprior: bool = True,
) -> EmpiricalBayes:
    """Return the hierarchical prior w_i ~ N(0, s), s ~ InvGamma(alpha, beta), s at its optimum.

    For each set of weights of a partition, the divergence is

        KL(q || N(0, s*)) - log p(s*),    s* = (sum_i E_q w_i^2 + 2 beta) / (size + 2 alpha + 2).

    Parameters
    ----------
    alpha
        Shape of the inverse gamma distribution, a number.
    beta
        Its scale: a number, or a PyTree shaped like the parameters with a number a tensor, the same
        for all tensors of a set. `per_fan_in(network, (1 + alpha) * v)` puts the mode of the
        prior at v / fan_in.
    partition
        "tensor": one s for every w and every b. "layer": one for w and b of a layer. "all": one.
        Or a PyTree shaped like the parameters of labels, numbers or strings, or of arrays of labels
        shaped like the tensors (one a row of w, say); equal labels share.
    include_hyperprior
        Whether -log p(s*) is counted; s* minimises the sum only. The authors' code leaves it out.

    Raises
    ------
    ValueError
        If alpha or beta is not positive, or not a number where one is asked for, or the partition
        is of another kind. A PyTree of betas at other places than the parameters, or with unequal
        ones for tensors of one set, is refused where it meets them.

    Notes
    -----
    Source: Wu et al., (11)-(13); erratum C5. Their text has alpha = 1, beta = 10;
    their code alpha = 4.4798 and beta = (alpha + 1) 5 / fan_in.

    Examples
    --------
    >>> empirical_bayes(partition="layer").include_hyperprior
    True
    """
    check_flag("include_hyperprior", include_hyperprior)
    if beta is None:
        raise TypeError("beta must be a number, or a PyTree of numbers, but is None.")
    numbers = {"alpha": alpha} | {
        f"beta{keystr(path)}": leaf for path, leaf in tree_leaves_with_path(beta)
    }
    for name, number in numbers.items():
        check_positive(name, number)
        if jnp.ndim(number) != 0:
            raise ValueError(
                f"{name} must be one number, but has shape {jnp.shape(number)}; give a number a "
                "tensor of parameters."
            )
    if isinstance(partition, str) and partition not in ("tensor", "layer", "all"):
        raise ValueError(
            "partition must be 'tensor', 'layer', 'all' or a PyTree of labels shaped like the "
            f"parameters, but is {partition!r}."
        )
    labels = partition if isinstance(partition, str) else frozen(partition)
    return EmpiricalBayes(alpha, beta, labels, include_hyperprior)


def kl_divergence(q: Family, prior: PyTree | EmpiricalBayes) -> Scalar:
    """Return KL(q || prior); for an `EmpiricalBayes` minus log p(s*), as it says.

    Parameters
    ----------
    q
        A `FactorisedNormal` or `LayerwiseNormal`.
    prior
        `empirical_bayes(...)`, or a PyTree of `Normal` and `Laplace` distributions shaped like the
        parameters, or a shorter one that `expand_prior` can expand.

    Raises
    ------
    TypeError
        If q is none of these, of floating-point numbers, or a distribution of the prior is neither
        normal nor Laplace.
    ValueError
        If the prior is not shaped like the parameters.

    Notes
    -----
    Source: Wu et al., (10), (12), (13); erratum C5.

    Examples
    --------
    >>> from jaxbnn.dvi import FactorisedNormal
    >>> q = FactorisedNormal({"w": jnp.ones(2)}, {"w": jnp.zeros(2)})
    >>> float(kl_divergence(q, dist.Normal(0.0, 1.0)))
    1.0
    """
    check_q(q)
    q = jax.tree.map(widened, q)
    mean, variance = moments_of(q)
    if isinstance(prior, EmpiricalBayes):
        return _empirical_cross_entropy(prior, mean, variance) - entropy(q)
    prior = expand_prior(prior, mean)
    terms = [
        _cross_entropy(distribution, m, v)
        for distribution, m, v in zip(
            jax.tree.leaves(prior, is_leaf=is_distribution),
            jax.tree.leaves(mean),
            jax.tree.leaves(variance),
            strict=True,
        )
    ]
    return sum(terms[1:], start=terms[0]) - entropy(q)


def fitted_prior(prior: EmpiricalBayes, q: Family) -> PyTree:
    """Return the prior at its optimal variances, a PyTree of NumPyro normals: for MCMC, say.

    Parameters
    ----------
    prior
        From `empirical_bayes`.
    q
        Of the parameters.

    Raises
    ------
    ValueError
        A partition of the prior that is not shaped like the parameters; a q whose second moments
        are not finite.

    Examples
    --------
    >>> from jaxbnn.dvi import FactorisedNormal
    >>> q = FactorisedNormal({"w": jnp.ones(2)}, {"w": jnp.zeros(2)})
    >>> fitted_prior(empirical_bayes(1.0, 10.0), q)["w"].variance.tolist()  # (4 + 20) / (2 + 4)
    [4.0, 4.0]
    """
    mean, variance = moments_of(q)
    leaves, structure = jax.tree.flatten(mean)
    optimum = _sets(prior, mean, variance)[0]
    scales = [jnp.sqrt(optimum[index]) for index in set_numbers(prior.partition, mean)]
    for scale in scales:
        check_positive("each scale of the fitted prior", scale, "give a q of finite moments")
    return jax.tree.unflatten(
        structure,
        [
            dist.Normal(jnp.zeros_like(leaf), s).to_event(leaf.ndim)
            for leaf, s in zip(leaves, scales, strict=True)
        ],
    )


def _empirical_cross_entropy(prior: EmpiricalBayes, mean: PyTree, variance: PyTree) -> Scalar:
    """Return -E_q[log p(w | s*)] - log p(s*)."""
    optimum, second, size, beta = _sets(prior, mean, variance)
    log_s = jnp.log(optimum)
    total = 0.5 * jnp.sum(size * (log_s + math.log(2 * math.pi)) + second / optimum)
    if prior.include_hyperprior:
        alpha = jnp.asarray(prior.alpha, total.dtype)
        normaliser = alpha * jnp.log(beta) - jax.scipy.special.gammaln(alpha)
        total = total - jnp.sum(normaliser - (alpha + 1) * log_s - beta / optimum)
    return total


def _sets(prior: EmpiricalBayes, mean: PyTree, variance: PyTree) -> tuple[Array, ...]:
    """Return s*, E|w|^2, size and beta of every set, each (sets,)."""
    squares = jax.tree.leaves(jax.tree.map(lambda m, v: jnp.square(m) + v, mean, variance))
    numbers = set_numbers(prior.partition, mean)
    second, size = sums_of_sets(squares, numbers)
    beta = value_of_sets(prior.beta, mean, numbers, second)
    alpha = jnp.asarray(prior.alpha, second.dtype)
    return (second + 2 * beta) / (size + 2 * alpha + 2), second, size, beta


def _cross_entropy(distribution: Any, mean: Array, variance: Array) -> Scalar:
    """Return -E_q[log p(w)] of one leaf."""
    base = distribution
    while isinstance(base, dist.Independent | dist.ExpandedDistribution):
        base = base.base_dist

    def fit(value: ArrayLike) -> Array:
        value = jnp.asarray(value, mean.dtype)
        return value.reshape(()) if value.size == 1 else jnp.broadcast_to(value, mean.shape)

    if type(base) is dist.Normal:
        loc, scale = fit(base.loc), fit(base.scale)
        quadratic = (variance + jnp.square(mean - loc)) / jnp.square(scale)
        log_scales = jnp.sum(jnp.log(scale)) * (mean.size / scale.size)
        return 0.5 * jnp.sum(quadratic) + log_scales + 0.5 * mean.size * math.log(2 * math.pi)
    if type(base) is dist.Laplace:
        loc, scale = fit(base.loc), fit(base.scale)
        deviation = deviation_of(variance)
        z = (mean - loc) / deviation
        distance = deviation * (2 * normal_density(z) + z * (normal_cdf(z) - normal_cdf(-z)))
        log_scales = jnp.sum(jnp.log(2 * scale)) * (mean.size / scale.size)
        return jnp.sum(distance / scale) + log_scales
    raise TypeError(
        f"there is no closed form of the divergence from a {type(base).__name__} prior; use "
        "Normal, Laplace or empirical_bayes."
    )
