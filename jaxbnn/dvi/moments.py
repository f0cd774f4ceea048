"""Mean and covariance of an elementwise function of a Gaussian vector."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxbnn.dvi.asymptotic import heaviside_covariance_asymptotic, relu_remainder_asymptotic
from jaxbnn.dvi.hermite import MOST_NODES, hermite_coefficients, mehler_covariance
from jaxbnn.dvi.pairs import MAX_CORRELATION, heaviside_covariance, relu_remainder
from jaxbnn.dvi.standard_normal import normal_cdf, relu_moments
from jaxbnn.networks import activation_function
from jaxbnn.numerics import check_count, check_finite, check_real, is_concrete
from jaxbnn.numerics.arguments import check_function, check_type, check_word
from jaxbnn.numerics.tails import as_floats, normal_density

Rule = Literal["exact", "asymptotic", "gauss_hermite"]

_DEFAULT_NODES = MappingProxyType({"exact": 8, "asymptotic": 0, "gauss_hermite": 32})
# Of which float32 still takes the square root, and the square of its reciprocal.
SMALLEST_VARIANCE = 1e-30
_ROUNDING = 1e-4


class GaussianMoments(NamedTuple):
    """What is known of n independent Gaussian vectors of d entries.

    Attributes
    ----------
    mean
        (n, d).
    variance
        (n, d), the diagonal of the covariance; None where the vector is not random.
    covariance
        (n, d, d); None where the entries are uncorrelated, or taken to be so. Functions of moments
        refuse it without its diagonal, the variance.
    """

    mean: Float[Array, "n d"]
    variance: Float[Array, "n d"] | None = None
    covariance: Float[Array, "n d d"] | None = None

    def matrix(self) -> Float[Array, "n d d"]:
        """Return the covariance, whatever of it is stored."""
        if self.covariance is not None:
            return self.covariance
        width = self.mean.shape[1]
        variance = jnp.zeros_like(self.mean) if self.variance is None else self.variance
        return variance[:, :, None] * jnp.eye(width, dtype=self.mean.dtype)[None]


def activation_moments(
    function: str | Callable,
    inputs: GaussianMoments,
    *,
    rule: Rule = "exact",
    num_nodes: int | None = None,
) -> tuple[GaussianMoments, Float[Array, "n d"]]:
    """Return the moments of h = f(a) for Gaussian a, and E f'(a).

    Means, variances and slopes are exact in every rule but "gauss_hermite"; the rule says how
    covariances are computed. Inputs without a covariance give a result without one: the diagonal
    approximation (dDVI), exact where a is uncorrelated.

    Parameters
    ----------
    function
        Of an `Activation`. "exact" and "asymptotic" know relu, leaky_relu, abs, identity,
        heaviside and sign.
    inputs
        Moments of a; without variances a is not random. A variance below 1e-30 counts as 1e-30.
    rule
        "exact": erratum C2, to the tolerance that `nodes_for` states and positive semi-definite
        to rounding once converged. "asymptotic": the paper's approximation, corrected by
        erratum C1; need not be positive semi-definite. "gauss_hermite": any function, good for
        smooth ones; means and variances, too, are sums.
    num_nodes
        Of the quadrature; by default 8 for "exact" (1e-6 at |rho| <= 0.99 for relu) and 32, of 2
        to 300, for "gauss_hermite". There it is the number of Hermite coefficients, of sums over
        ten times as many nodes, evenly spaced. With 32, for tanh, erf, sigmoid, gelu and softplus:
        means within 1e-7 and variances to a relative 1e-6 where the variance of a is at most 100
        (beyond, take more: at 1e4 tanh's variances are off by 2 %, with 300 by 2e-7);
        covariances, in units of both deviations, to 1e-4 at |rho| <= .9 and 4e-3 at .99 where it
        is at most 9, and to 4e-4 and .03 where it is 100 (with 300: 1e-14 and 4e-5).

    Returns
    -------
    moments
        Of h; E h >= 0 and Var h >= 0 where they must be, also in float32.
    slope
        E f'(a), (n, d): Cov(b, h_j) = Cov(b, a_j) E f'(a_j) for any b jointly Gaussian with a.
        Where a is not random, f'(a), by automatic differentiation.

    Raises
    ------
    ValueError
        If the function has no moments under the rule, a variance is not positive, the covariance
        is not positive semi-definite, has another diagonal or comes without variances, the rule is
        unknown, or its number of nodes is too small or too large.

    Notes
    -----
    Source: Wu et al., (4)-(6), table 1 and appendix A, with errata C1 to C3. The
    diagonal is exact in every rule; the authors' code takes it from the approximation.

    Examples
    --------
    >>> correlated = jnp.full((1, 2, 2), 0.5) + jnp.eye(2) / 2
    >>> a = GaussianMoments(jnp.zeros((1, 2)), jnp.ones((1, 2)), correlated)
    >>> h, slope = activation_moments("relu", a)
    >>> round(float(h.covariance[0, 0, 1]), 5), slope.tolist()
    (0.14534, [[0.5, 0.5]])
    """
    check_rule(rule, num_nodes)
    check_moments(inputs)
    return transform(function, floating(inputs), rule, num_nodes)


def floating(moments: GaussianMoments) -> GaussianMoments:
    """Return the moments as floats: whole numbers would cut what is computed in their dtype."""
    return jax.tree.map(lambda leaf: as_floats(leaf)[0], moments)


def transform(
    function: str | Callable, inputs: GaussianMoments, rule: Rule, num_nodes: int | None
) -> tuple[GaussianMoments, Float[Array, "n d"]]:
    """Do what `activation_moments` does, without its checks of the numbers."""
    if inputs.variance is None:
        known = activation_function(function)
        (at,) = as_floats(inputs.mean)
        slope = jax.grad(lambda a: jnp.sum(known(a).astype(a.dtype)))(at)
        return GaussianMoments(known(inputs.mean)), slope
    num_nodes = num_nodes or _DEFAULT_NODES[rule]
    variance = jnp.maximum(inputs.variance, SMALLEST_VARIANCE)
    scale = jnp.sqrt(variance)
    if rule == "gauss_hermite":
        return _by_hermite(activation_function(function), inputs, scale, num_nodes)
    line, ramp, jump, offset = linear_parts(function)

    mu = inputs.mean / scale
    cdf = normal_cdf(mu)
    relu_mean, relu_variance = relu_moments(mu)
    slope = jnp.full_like(mu, line)
    mean = line * inputs.mean + offset
    spread = jnp.full_like(mu, line**2)
    if ramp:
        slope = slope + ramp * cdf
        mean = mean + ramp * scale * relu_mean
        spread = spread + ramp**2 * relu_variance + 2 * line * ramp * cdf
    spread = variance * spread
    if jump:
        slope = slope + jump * normal_density(mu) / scale
        mean = mean + jump * cdf
        spread = spread + jump**2 * cdf * normal_cdf(-mu)
        # A step at its own place is no fair coin where there is nothing random: at zero inputs of
        # a network without biases.
        certain = inputs.variance == 0
        mean = jnp.where(certain, activation_function(function)(inputs.mean), mean)
        slope, spread = (jnp.where(certain, 0, values) for values in (slope, spread))
    if inputs.covariance is None:
        return GaussianMoments(mean, spread), slope

    rho = _correlation(inputs.covariance, scale)
    mu1, mu2 = (jnp.broadcast_to(jnp.expand_dims(mu, axis), rho.shape) for axis in (2, 1))
    ramp_slope = line + ramp * cdf
    covariance = inputs.covariance * ramp_slope[:, :, None] * ramp_slope[:, None, :]
    if ramp:
        if rule == "exact":
            remainder = relu_remainder(mu1, mu2, rho, num_nodes)
        else:
            remainder = relu_remainder_asymptotic(mu1, mu2, rho)
        covariance = covariance + ramp**2 * remainder * scale[:, :, None] * scale[:, None, :]
    if jump:
        if rule == "exact":
            of_steps = heaviside_covariance(mu1, mu2, rho, num_nodes)
        else:
            of_steps = heaviside_covariance_asymptotic(mu1, mu2, rho)
        covariance = covariance + jump**2 * of_steps
    return GaussianMoments(mean, spread, _with_diagonal(covariance, spread)), slope


def deviation_of(variance: Array) -> Array:
    """Return the square root, kept above zero, where it has no derivative.

    An output without noise is met by a network without biases at x = 0.
    """
    return jnp.sqrt(jnp.maximum(variance, SMALLEST_VARIANCE))


def linear_parts(function: str | Callable) -> tuple[float, float, float, float]:
    """Return a, b, c, k of f(z) = a z + b relu(z) + c heaviside(z) + k.

    Raises
    ------
    ValueError
        If the function is not of this form, or is a callable that is not one of ours.

    Examples
    --------
    >>> linear_parts("abs")
    (-1.0, 2.0, 0.0, 0.0)
    """
    if not isinstance(function, str):
        check_function("function", function, "give a name, as 'relu', or an elementwise function")
    parts = {
        "relu": (0.0, 1.0, 0.0, 0.0),
        "leaky_relu": (0.01, 0.99, 0.0, 0.0),
        "abs": (-1.0, 2.0, 0.0, 0.0),
        "identity": (1.0, 0.0, 0.0, 0.0),
        "heaviside": (0.0, 0.0, 1.0, 0.0),
        "sign": (0.0, 0.0, 2.0, -1.0),
    }
    for name, found in parts.items():
        if function == name or function is activation_function(name):
            return found
    raise ValueError(
        f"there are no exact moments of {function!r} (only of {', '.join(parts)}); use "
        "moments='gauss_hermite', which takes any elementwise function."
    )


def check_rule(rule: Rule, num_nodes: int | None, name: str = "rule") -> None:
    """Raise unless the rule is one of ours, with as many nodes as it needs.

    Examples
    --------
    >>> check_rule("gauss_hermite", 1)
    Traceback (most recent call last):
    ValueError: num_nodes must be at least 2, but is 1; one node sees no slope.
    """
    check_word(name, rule, get_args(Rule))
    if num_nodes is None or rule == "asymptotic":
        return
    check_count("num_nodes", num_nodes)
    if rule == "gauss_hermite" and num_nodes < 2:
        raise ValueError("num_nodes must be at least 2, but is 1; one node sees no slope.")
    if rule == "gauss_hermite" and num_nodes > MOST_NODES:
        raise ValueError(
            f"num_nodes must be at most {MOST_NODES}, but is {num_nodes}; the weights of larger "
            "rules of Gauss and Hermite overflow."
        )


def check_sizes(moments: GaussianMoments, *, may_be_zero: bool = True) -> None:
    """Raise unless mean, variance and covariance are real, finite and fit each other."""
    check_type("moments", moments, GaussianMoments, "write GaussianMoments(mean, variance)")
    if moments.variance is None and moments.covariance is not None:
        raise ValueError(
            "moments with a covariance need its diagonal too, but have no variance; give "
            "variance=jnp.diagonal(covariance, axis1=1, axis2=2)."
        )
    shape = np.shape(moments.mean)
    wanted = {"mean": shape, "variance": shape, "covariance": (*shape, *shape[1:])}
    for name, expected in wanted.items():
        values = getattr(moments, name)
        if values is None:
            continue
        check_real(f"the {name} of the moments", values)
        if len(shape) != 2 or np.shape(values) != expected:
            raise ValueError(
                f"moments have a mean (n, d), a variance (n, d) and a covariance (n, d, d), but "
                f"the mean has shape {shape} and the {name} {np.shape(values)}."
            )
        check_finite(f"the {name} of the moments", values, "look for overflow before it")
        if name == "variance" and is_concrete(values):
            variance = np.asarray(values)
            bad = variance < 0 if may_be_zero else variance <= 0
            if bad.any():
                index = tuple(int(i) for i in np.argwhere(bad)[0])
                raise ValueError(
                    f"variances must be {'zero or ' if may_be_zero else ''}positive, but the one "
                    f"at index {index} is {variance[index]:g}; give the diagonal of a covariance."
                )


def check_moments(moments: GaussianMoments, *, may_be_zero: bool = False) -> None:
    """Raise ValueError unless variances are positive and covariances are covariance matrices.

    A covariance is symmetric, positive semi-definite, and has the variances on its diagonal, all
    to a ten thousandth of its largest entry.

    Examples
    --------
    >>> check_moments(GaussianMoments(jnp.zeros((1, 1)), jnp.array([[-0.5]])))
    Traceback (most recent call last):
    ValueError: variances must be positive, but the one at index (0, 0) is -0.5; give the ...
    """
    check_sizes(moments, may_be_zero=may_be_zero)
    if moments.covariance is None or moments.variance is None or not is_concrete(moments):
        return
    variance = np.asarray(moments.variance, np.float64)
    matrix = np.asarray(moments.covariance, np.float64)
    largest = np.max(np.abs(matrix), axis=(1, 2), initial=SMALLEST_VARIANCE)
    gap = np.diagonal(matrix, axis1=1, axis2=2) - variance
    skew = matrix - np.swapaxes(matrix, 1, 2)
    for values, what in ((gap, "have the variances on its diagonal"), (skew, "be symmetric")):
        flat = np.max(np.abs(values).reshape(len(variance), -1), axis=1, initial=0.0)
        if (flat > _ROUNDING * largest).any():
            worst = int(np.argmax(flat / largest))
            raise ValueError(
                f"covariance must {what}, but that of datum {worst} is off by {flat[worst]:.3g}; "
                "give a covariance matrix."
            )
    eigenvalues = np.linalg.eigvalsh(matrix)
    relative = eigenvalues[:, 0] / np.maximum(eigenvalues[:, -1], SMALLEST_VARIANCE)
    if relative.min(initial=0.0) < -_ROUNDING:
        worst = int(np.argmin(relative))
        raise ValueError(
            "covariance must be positive semi-definite, but that of datum "
            f"{worst} has the eigenvalue {eigenvalues[worst, 0]:.3g} (largest "
            f"{eigenvalues[worst, -1]:.3g}); give a covariance matrix."
        )


def _by_hermite(
    function, inputs: GaussianMoments, scale, num_nodes
) -> tuple[GaussianMoments, Array]:
    count = 2 if inputs.covariance is None else num_nodes
    coefficients, variance = hermite_coefficients(function, inputs.mean, scale, num_nodes, count)
    slope = coefficients[..., 1] / scale
    if inputs.covariance is None:
        return GaussianMoments(coefficients[..., 0], variance), slope
    covariance = mehler_covariance(coefficients, _correlation(inputs.covariance, scale))
    covariance = _with_diagonal(covariance, variance)
    return GaussianMoments(coefficients[..., 0], variance, covariance), slope


def _correlation(covariance: Array, scale: Array) -> Array:
    """Return off-diagonal correlations, zero on the diagonal, which has formulas of its own."""
    # Never divided by a product of scales: the square of that is in the derivative, and underflows.
    inverse = 1 / scale
    rho = covariance * inverse[:, :, None] * inverse[:, None, :]
    rho = jnp.clip(rho, -MAX_CORRELATION, MAX_CORRELATION)
    return jnp.where(_on_diagonal(rho.shape[1]), 0, rho)


def _with_diagonal(matrix: Array, diagonal: Array) -> Array:
    return jnp.where(_on_diagonal(matrix.shape[1]), diagonal[:, :, None], matrix)


def _on_diagonal(width: int) -> Array:
    return jnp.eye(width, dtype=bool)[None]
