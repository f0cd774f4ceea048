"""What the reparametrisation needs of a network and its data, in one sentence each."""

import itertools
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Shaped

from jaxbnn.networks import (
    Dense,
    Network,
    features,
    init,
    layer_shapes,
    output_shape,
    parameter_shapes,
)
from jaxbnn.numerics import check_positive, check_real, is_concrete
from jaxbnn.numerics.arguments import check_type
from jaxbnn.numerics.data import finite_array, warn_of_rounded_inputs
from jaxbnn.wide.design import design_matrix
from jaxbnn.wide.linear_model import Form, log_marginal_terms, to_read_out

# What rounding may do: the spread of the error of l, and the root mean square shift of the
# read-out's mean; see `check_precision`.
_MOST_NATS, _MOST_DEVIATIONS = 0.45, 0.2


def check_network(network: Network) -> None:
    """Raise ValueError unless the network is in the ntk parametrisation with a linear read-out.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> check_network(mlp((4, 3, 1)))
    Traceback (most recent call last):
    ValueError: the reparametrisation needs standard normal weights, but the network is in the ...
    """
    check_type("network", network, Network, "make one with jaxbnn.mlp or jaxbnn.Network")
    last = network.layers[-1]
    if not isinstance(last, Dense):
        raise ValueError(
            "the reparametrisation needs a linear read-out, but the network ends in "
            f"{type(last).__name__}; let a Dense be its last layer."
        )
    if network.parametrisation != "ntk":
        raise ValueError(
            "the reparametrisation needs standard normal weights, but the network is in the "
            f"{network.parametrisation} parametrisation; give it parametrisation='ntk'."
        )
    if len(output_shape(network)) != 1:
        inputs = (network.input_shape, *layer_shapes(network))[-2]
        raise ValueError(
            f"the read-out must see one vector per datum, but its inputs have shape {inputs}; put "
            "a Flatten() before it."
        )


def checked_data(
    network: Network, x: Shaped[ArrayLike, "..."], y: Shaped[ArrayLike, "..."]
) -> tuple[Float[Array, "n *input"], Float[Array, "n k"]]:
    """Return x and y as arrays of one dtype, y with a column per output; or say what is wrong."""
    for name, data in (("x", x), ("y", y)):
        check_real(name, data)
        finite_array(name, data)
    given, x = x, jnp.asarray(x)
    is_floating = jnp.issubdtype(x.dtype, jnp.floating)
    if is_floating and jnp.finfo(x.dtype).bits < 32:
        raise TypeError(
            f"x has dtype {x.dtype}, in which no matrix can be factored; use x.astype(jnp.float32)."
        )
    params = parameter_shapes(network, x.dtype if is_floating else float)
    jax.eval_shape(lambda params: features(network, params, x), params)  # refuses a wrong x
    shape, (num_outputs,) = np.shape(y), output_shape(network)
    expected = [(x.shape[0], num_outputs)] + ([(x.shape[0],)] if num_outputs == 1 else [])
    if shape not in expected or x.shape[0] == 0:
        raise ValueError(
            f"y must have shape {expected[0]}, a row per datum (at least one) and a column per "
            f"output of the network, but has {shape}; change y, x or the last layer."
        )
    warn_of_rounded_inputs(given, np.dtype(x.dtype))
    return x, jnp.asarray(y, x.dtype).reshape(expected[0])


def check_noise_scale(noise_scale: Any) -> None:
    """Raise unless the noise scale is one positive number; a traced one is not looked at.

    Examples
    --------
    >>> check_noise_scale(0.0)
    Traceback (most recent call last):
    ValueError: noise_scale must be positive and finite, but is 0; ...
    """
    if not (isinstance(noise_scale, jax.Array) or np.asarray(noise_scale).dtype.kind in "fiu"):
        raise TypeError(
            "noise_scale must be a number, the standard deviation of Gaussian noise, but is "
            f"{type(noise_scale).__name__}; the reparametrisation exists for Gaussian noise only, "
            "while pcn and pcnl on the weights themselves take any likelihood."
        )
    if np.ndim(noise_scale) != 0:
        raise ValueError(
            f"noise_scale must be one number for all outputs, but has shape "
            f"{np.shape(noise_scale)}; scale the columns of y instead."
        )
    check_positive("noise_scale", noise_scale, "give the standard deviation of the noise")


def check_rounding(
    network: Network,
    form: Form,
    x: Float[Array | np.ndarray, "n *input"],
    noise_scale: ArrayLike,
) -> None:
    """Raise where the noise variance is lost in the rounding of the matrix that is factored.

    The pivots L_ii^2 of the Cholesky factorisation of K are known to eps K_ii, which moves the log
    marginal likelihood by some eps sum_i K_ii / L_ii^2: above one nat, or where no factor exists at
    all, a chain would sample something else, or never move. It is looked at with weights drawn from
    the prior, in float64 where it can matter: traced data and noise are not looked at.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> network = mlp((1, 8, 1), "tanh", parametrisation="ntk")
    >>> check_rounding(network, "data", jnp.ones((3, 1)), 1e-5)
    Traceback (most recent call last):
    ValueError: noise_scale 1e-05 is too small for float32: ...
    """
    if not (is_concrete(x) and is_concrete(noise_scale)):
        return
    eps, tiny = float(jnp.finfo(x.dtype).eps), float(jnp.finfo(x.dtype).tiny)
    scale = float(np.asarray(noise_scale))
    variance = scale**2
    psi = np.asarray(next(_prior_designs(network, x)))
    if 10 * len(x) * eps * _scale_of(psi, x) < variance:
        return
    psi = psi.astype(np.float64)
    gram = psi @ psi.T if form == "data" else psi.T @ psi
    # The precision of the "features" form is this one over the variance.
    gram[np.diag_indices_from(gram)] += variance
    try:
        pivots = np.square(np.diagonal(np.linalg.cholesky(gram)))
        error = eps * float(np.sum(np.diagonal(gram) / pivots))
    except np.linalg.LinAlgError:
        error = math.inf
    if error > 1 or variance < tiny:
        raise ValueError(
            f"noise_scale {scale:g} is too small for {x.dtype}: with rows or features "
            "as alike as these, the matrix that is factored keeps nothing of the noise's variance; "
            "use float64 (jax_enable_x64), more noise, the other form, or leave out repeated rows."
        )


def check_precision(
    network: Network,
    form: Form,
    x: Float[Array | np.ndarray, "n *input"],
    y: Float[Array | np.ndarray, "n k"],
    noise_scale: ArrayLike,
) -> None:
    """Raise where rounding makes another posterior of these targets.

    The error e of l(W) is measured by `rounding_error` at weights drawn from the prior. A constant
    e does no harm, and the Kullback-Leibler divergence between the densities of l and of l + e is
    var(e) / 2 to second order: 0.1 nats at a standard deviation of 0.45, above which it is refused.
    So is a mean of the read-out that is off by more than 0.2 posterior standard deviations in root
    mean square, which makes the squared error of its draws 4% larger. Both grow with y, its offset
    included, over the noise scale. Traced data, targets and noise are not looked at, and nothing is
    measured where the sizes of one prior draw show that it is negligible; else it costs some
    evaluations of l.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> network = mlp((1, 8, 1), "tanh", parametrisation="ntk")
    >>> x = jnp.linspace(-1, 1, 20)[:, None]
    >>> check_precision(network, "features", x, x, 0.01)
    >>> check_precision(network, "features", x, x + 1e4, 0.01)
    Traceback (most recent call last):
    ValueError: float32 is too coarse for these targets and noise_scale 0.01: ...
    """
    if not is_concrete((x, y, noise_scale)):
        return
    sigma = np.asarray(noise_scale, x.dtype)
    designs = _prior_designs(network, x, 4)
    first = next(designs)
    if _is_negligible(_scale_of(np.asarray(first), x), x, y, float(sigma)):
        return
    with jax.ensure_compile_time_eval(), np.errstate(over="ignore", invalid="ignore"):
        measured = [
            rounding_error(psi, y, sigma, form) for psi in itertools.chain([first], designs)
        ]
        errors, shifts = np.transpose(measured)
        spread, shift = np.std(errors, ddof=1), np.sqrt(np.mean(np.square(shifts)))
    if not (spread <= _MOST_NATS and shift <= _MOST_DEVIATIONS):  # NaN is refused as well
        raise ValueError(
            f"{x.dtype} is too coarse for these targets and noise_scale {sigma:g}: by rounding, "
            f"the log marginal likelihood is off by {spread:.2g} nats (at most {_MOST_NATS:g} do "
            f"no harm) and the read-out's mean by {shift:.2g} posterior standard deviations (at "
            f"most {_MOST_DEVIATIONS:g}); {_remedies(x, y)}."
        )


def rounding_error(
    psi: Float[Array, "n p"],
    y: Float[Array | np.ndarray, "n k"],
    noise_scale: Float[Array | np.ndarray, ""],
    form: Form,
) -> tuple[float, float]:
    """Return what rounding adds to the log marginal likelihood, and how far it moves the mean.

    The first without the log determinant's share, which `check_rounding` bounds; the second in
    posterior standard deviations of theta, a root mean square over the min(n, p) k directions that
    data determine. With the mean m as it was computed and g = Psi^T (Y - Psi m) / sigma^2 - m in
    float64, the mean is off by Sigma g, of squared length |A^T g|^2 in the posterior's own metric,
    and

        tr(Y^T K^-1 Y) = |Y - Psi m|^2 / sigma^2 + |m|^2 - |A^T g|^2

    whatever m is; |A^T g| needs no precision, so that nothing is factored in float64.

    Parameters
    ----------
    psi, y, noise_scale, form
        As in `linear_model.log_marginal_terms`, of the dtype that is judged.

    Examples
    --------
    >>> psi, y = jnp.array([[1.0], [2.0]]), jnp.array([[2.0], [4.0]])
    >>> error, shift = rounding_error(psi, y, jnp.array(1.0), "features")
    >>> abs(error) < 1e-5, shift < 1e-5
    (True, True)
    """
    terms, terms_of_zero, mean, transposed = as_computed(psi, y, noise_scale, form)
    psi64, y64, mean64 = (np.asarray(values, np.float64) for values in (psi, y, mean))
    sigma = float(noise_scale)
    residual = (y64 - psi64 @ mean64) / sigma
    gradient = psi64.T @ residual / sigma - mean64
    (white,) = transposed(jnp.asarray(gradient, psi.dtype))
    away = np.sum(np.square(np.asarray(white, np.float64)))
    exact = -(np.sum(residual**2) + np.sum(mean64**2) - away) / 2
    of_y = np.sum(np.asarray(terms, np.float64) - np.asarray(terms_of_zero, np.float64))
    return float(of_y - exact), float(np.sqrt(away / (min(psi.shape) * y.shape[1])))


@partial(jax.jit, static_argnames="form")
def as_computed(psi: Array, y: Array, noise_scale: Array, form: Form):
    """Return the terms of l for y and for y = 0, the read-out's mean, and g -> A^T g."""
    terms, of_zero = (
        log_marginal_terms(psi, values, noise_scale, form) for values in (y, jnp.zeros_like(y))
    )
    phi = jnp.zeros((psi.shape[1], y.shape[1]), psi.dtype)
    mean, transposed = jax.vjp(lambda phi: to_read_out(phi, psi, y, noise_scale, form), phi)
    return terms, of_zero, mean, transposed


def _prior_designs(network: Network, x: Array | np.ndarray, number: int = 1) -> Iterator[Array]:
    """Yield Psi at weights drawn from the prior, also while something else is traced."""
    for seed in range(number):
        with jax.ensure_compile_time_eval():
            params = init(jax.random.key(seed), network)
            params = jax.tree.map(lambda leaf: leaf.astype(x.dtype), params)
            psi = design_matrix(network, params, x)
        yield psi


def _scale_of(psi: Float[np.ndarray, "n p"], x: Array | np.ndarray) -> float:
    """Return the scale of K's diagonal at these weights, and at least that of the inputs and 1.

    NaN where the features overflow: what is compared with it counts as not negligible.
    """
    of_inputs = np.max(np.mean(np.square(np.asarray(x, float)), axis=0))
    with np.errstate(over="ignore", invalid="ignore"):
        of_features = np.max(np.einsum("np,np->n", psi, psi))
    return float(np.maximum(np.maximum(1.0, of_inputs), of_features))


def _is_negligible(
    scale: float, x: Array | np.ndarray, y: Array | np.ndarray, sigma: float
) -> bool:
    """Whether eps cond(K) |y| / sigma (1 + |y| / sigma) bounds both errors far below the limits."""
    condition = 1 + len(x) * scale / sigma**2
    size = float(np.linalg.norm(np.asarray(y, np.float64))) / sigma
    return 10 * float(jnp.finfo(x.dtype).eps) * condition * size * (1 + size) < 0.1


def _remedies(x: Array | np.ndarray, y: Array | np.ndarray) -> str:
    """Return what helps: less offset where y has one, more noise, and float64 unless it is."""
    columns = np.asarray(y, np.float64)
    has_offset = bool(np.any(np.abs(np.mean(columns, axis=0)) > np.std(columns, axis=0)))
    ways = ["subtract its mean from y"] if has_offset else []
    ways += ["take a larger noise_scale"]
    if x.dtype == jnp.float32:
        enable = "jax.config.update('jax_enable_x64', True)"
        ways += [f"use float64 ({enable}, with x and the weights in float64)"]
    return " or ".join(ways)
