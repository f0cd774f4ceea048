"""What a posterior says at new inputs: means, intervals, probabilities, and why it is unsure.

With draws t_1, ..., t_S the predictive distribution is the mixture (1/S) sum_s p(y | x, t_s), and
its uncertainty splits in two:

    numbers    Var(y)  = E[Var(y | t)] + Var(E[y | t])
    classes    H(E p)  = E[H(p)]       + mutual information of y and t

The first part, aleatoric, is noise that more data would not remove; the second, epistemic, is what
the draws disagree about.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int, PyTree, Shaped

from jaxbnn.diagnostics.functions import check_positions
from jaxbnn.numerics import check_finite, check_fraction, check_real
from jaxbnn.numerics.arrays import widened, widest_float, without_wrapping
from jaxbnn.numerics.checks import check_outside
from jaxbnn.numerics.outside import reading_anew
from jaxbnn.prediction.families import (
    FEWEST_DRAWN,
    Components,
    components,
    family_of,
    parameters_of,
    root_mean_square,
    summary_of,
)

WHY_OUTSIDE = "it goes over the rows on the host; call it outside: it compiles batches itself"
# Numbers held at once: draws times rows of one batch.
_NUMBERS = 2**21
_DRAWS_AT_ONCE = 32
_MOST_STEPS = 120  # every third of which halves the bracket


class NumberPrediction(NamedTuple):
    """The predictive distribution of numbers; arrays are laid out as y is, (n,) or (n, k).

    Attributes
    ----------
    mean, sd
        Of the predictive mixture; sd^2 = aleatoric + epistemic.
    lower, upper
        The central interval of probability `level`: quantiles of the mixture.
    aleatoric, epistemic
        Variances: mean of the noise's, and variance of the means.
    level
        Probability of the interval.
    """

    mean: Float[np.ndarray, "n *columns"]
    sd: Float[np.ndarray, "n *columns"]
    lower: Float[np.ndarray, "n *columns"]
    upper: Float[np.ndarray, "n *columns"]
    aleatoric: Float[np.ndarray, "n *columns"]
    epistemic: Float[np.ndarray, "n *columns"]
    level: float


class ClassPrediction(NamedTuple):
    """The predictive distribution of classes, C of them; a Bernoulli has the classes 0 and 1.

    Attributes
    ----------
    probabilities
        Means over the draws; they sum to 1.
    label
        The most probable class.
    lower, upper
        Quantiles over the draws of each class's probability, which hold `level` between them.
    aleatoric, epistemic
        Entropies in nats: mean of the draws' own, and what is left of the mixture's.
    level
        Probability of the interval.
    """

    probabilities: Float[np.ndarray, "n *columns classes"]
    label: Int[np.ndarray, "n *columns"]
    lower: Float[np.ndarray, "n *columns classes"]
    upper: Float[np.ndarray, "n *columns classes"]
    aleatoric: Float[np.ndarray, "n *columns"]
    epistemic: Float[np.ndarray, "n *columns"]
    level: float


def predict(
    draws: Any, x: Shaped[Any, "n ..."], posterior: Any, *, level: float | int = 0.9
) -> NumberPrediction | ClassPrediction:
    """Predict at new inputs.

    Parameters
    ----------
    draws
        What `sample` returns, or a PyTree of positions with leaves (chain, draw, ...); or what
        `optimised_starts` returns, a deep ensemble.
    x
        Inputs, shape (n, ...), real ones in the draws' precision: the widest of a position's parts.
        They go through in batches, so that memory holds the predictions of all draws for a few
        rows only.
    posterior
        The `Posterior` that was sampled; its data are not looked at.
    level
        Probability of the intervals, between 0 and 1.

    Returns
    -------
    `ClassPrediction` for Bernoulli, categorical and ordinal likelihoods, `NumberPrediction` for the
    others. Quantiles of mixtures of normals are exact, those of other families (Student-t,
    Laplace, counts) from at least 4,096 draws, the same in every call: an interval of probability
    0.9 holds between 0.885 and 0.915 then, in all rows alike, and the ends of one of 0.999 are two
    of the few lowest and highest draws.

    Raises
    ------
    ValueError
        No draws; leaves without chain and draw axes; x with NaN, or numbers that the draws'
        precision does not hold, or without rows; a level outside (0, 1).
    TypeError
        A posterior of another kind; a predictive distribution of another family.

    Notes
    -----
    Depeweg, Hernandez-Lobato, Doshi-Velez, Udluft (2018) for the two parts.

    Examples
    --------
    >>> import jaxbnn
    >>> network = jaxbnn.mlp((1, 1))
    >>> x, y = jnp.ones((2, 1)), jnp.ones(2)
    >>> prior = jaxbnn.normal_prior(network)
    >>> posterior = jaxbnn.Posterior(network, prior, jaxbnn.Gaussian(1.0), x, y)
    >>> draws = ({"w": np.ones((1, 2, 1, 1)), "b": np.array([[[-1.0], [1.0]]])},)
    >>> prediction = predict(draws, np.zeros((3, 1)), posterior)
    >>> prediction.mean.tolist(), prediction.epistemic.tolist(), prediction.aleatoric.tolist()
    ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0])
    """
    check_outside("predict", WHY_OUTSIDE, draws, x)
    check_fraction("level", level, "; 0.9 is usual")
    check_posterior(posterior)
    # Formed in double precision: 1 less a small tail has few of its digits in single.
    tail = (1 - level) / 2
    parts = over_rows(_summary, draws, (x,), posterior, np.float32(tail))
    if "mean" in parts:
        return NumberPrediction(**parts, level=level)
    label = parts["probabilities"].argmax(axis=-1)
    return ClassPrediction(**parts, label=label, level=level)


def check_posterior(posterior: Any) -> None:
    """Raise TypeError unless `posterior` has predictive distributions, as a `Posterior` has."""
    if not hasattr(posterior, "predictive"):
        raise TypeError(
            "posterior must be the Posterior that was sampled, but is of type "
            f"{type(posterior).__name__}; a NumPyro model's posterior has simulate."
        )


def over_rows(
    function: Callable[..., dict[str, Array]],
    draws: Any,
    arrays: tuple,
    posterior: Any,
    *shared: Any,
    on_host: Callable[..., dict[str, np.ndarray]] | None = None,
) -> dict[str, np.ndarray]:
    """Apply `function(components, *arrays after the first, *shared)` to batches of rows.

    The first array is x; the components are those of the mixture at these rows: (mean, sd), each
    (draws, rows, ...), or the log probabilities (draws, rows, ..., classes), or `Components`. What
    the function returns goes through `on_host(found, *arrays after the first)`, in NumPy.
    """
    positions = flat_positions(draws)
    check_real("x", arrays[0])
    arrays = tuple(without_wrapping(np.asarray(array)) for array in arrays)
    x = arrays[0]
    if x.ndim == 0 or len(x) == 0:
        raise ValueError(f"x needs a row for each datum, but has shape {x.shape}; give rows.")
    check_finite("x", x)
    leaves = jax.tree.leaves(positions)
    if np.issubdtype(x.dtype, np.floating):
        dtype = widest_float([*leaves, posterior.x])
        positions = jax.tree.map(partial(_at_least, dtype), positions)
        with np.errstate(over="ignore"):
            arrays = (x.astype(dtype), *arrays[1:])
        check_finite(f"x, as {dtype},", arrays[0])
    n = len(x)
    rows = max(1, min(n, _NUMBERS // max(len(leaves[0]), FEWEST_DRAWN)))
    batches = []
    with reading_anew([_run], posterior):
        for start in range(0, n, rows):
            block = [array[start : start + rows] for array in arrays]
            short = rows - len(block[0])
            if short:  # the same program for the last rows
                block = [np.concatenate([b, np.repeat(b[-1:], short, axis=0)]) for b in block]
            found = jax.device_get(_run(function, positions, posterior, *block, *shared))
            batches.append(found if on_host is None else on_host(found, *block[1:]))
    return {name: np.concatenate([batch[name] for batch in batches])[:n] for name in batches[0]}


def _at_least(dtype: Any, leaf: Array) -> Array:
    """Return floats of fewer bits as those of a dtype, as in products with inputs of it."""
    is_narrow = jnp.issubdtype(leaf.dtype, jnp.floating) and (
        jnp.finfo(leaf.dtype).bits < jnp.finfo(dtype).bits
    )
    return leaf.astype(dtype) if is_narrow else leaf


@partial(jax.jit, static_argnums=0)
def _run(function, positions, posterior, x, *arguments):
    return function(mixture(posterior, positions, x), *arguments)


def flat_positions(draws: Any) -> PyTree:
    """Return the positions of all chains one after the other, leaves (draws, ...)."""
    is_ensemble = hasattr(draws, "as_draws")  # positions with one axis, the chain's
    positions = draws.as_draws() if is_ensemble else getattr(draws, "positions", draws)
    check_positions("predict", positions)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf).reshape(-1, *leaf.shape[2:]), positions)


def mixture(
    posterior: Any, positions: PyTree, x: Array
) -> tuple[Array, Array] | Array | Components:
    """Return means and deviations of normal components, log probabilities, or other components.

    Of a network in half precision they are in single: quantiles and scores need it.
    """
    kinds: list[type] = []

    def one(position):
        predictive = posterior.predictive(position, x)
        while isinstance(predictive, dist.Independent):
            predictive = predictive.base_dist
        if isinstance(predictive, dist.Normal):
            loc, scale = widened(predictive.loc), widened(predictive.scale)
            scale = jnp.maximum(scale, float(jnp.finfo(scale.dtype).tiny))  # scores at 0 are 0 / 0
            return jnp.broadcast_arrays(loc, scale)
        if isinstance(predictive, dist.BernoulliLogits):
            logits = widened(predictive.logits)
            return jnp.stack([jax.nn.log_sigmoid(-logits), jax.nn.log_sigmoid(logits)], axis=-1)
        if isinstance(predictive, dist.CategoricalLogits):
            return jax.nn.log_softmax(widened(predictive.logits), axis=-1)
        kind = family_of(predictive)
        if kind is not None:
            kinds.append(kind)
            return tuple(widened(parameter) for parameter in parameters_of(predictive))
        raise TypeError(
            f"the predictive distribution is of the family {type(predictive).__name__}, which "
            "predict does not know; it takes normal, Student-t, Laplace, Poisson and negative "
            "binomial ones, and Bernoulli and categorical ones given by logits."
        )

    out = jax.lax.map(one, positions, batch_size=_DRAWS_AT_ONCE)
    if kinds:
        return components(kinds[0], tuple(out))
    return tuple(out) if isinstance(out, list | tuple) else out


def _summary(components: Any, tail: Float[Array, ""]) -> dict[str, Array]:
    if isinstance(components, Components):
        return summary_of(components, tail)
    if isinstance(components, tuple):
        means, sds = components
        mean = jnp.mean(means, axis=0)
        aleatoric = jnp.mean(sds**2, axis=0)
        epistemic = jnp.mean((means - mean[None]) ** 2, axis=0)
        lower, upper = mixture_quantile(means, sds, tail), -mixture_quantile(-means, sds, tail)
        return {
            "mean": mean,
            "sd": jnp.hypot(root_mean_square(sds), root_mean_square(means - mean[None])),
            "lower": lower,
            "upper": upper,
            "aleatoric": aleatoric,
            "epistemic": epistemic,
        }
    probabilities = jnp.exp(components)
    mean = jnp.mean(probabilities, axis=0)
    aleatoric = jnp.mean(_entropy(probabilities), axis=0)
    ends = jnp.stack([tail, 1 - tail]).astype(mean.dtype)
    lower, upper = jnp.quantile(probabilities, ends, axis=0)
    return {
        "probabilities": mean,
        "lower": lower,
        "upper": upper,
        "aleatoric": aleatoric,
        # Not negative but for rounding.
        "epistemic": jnp.maximum(_entropy(mean) - aleatoric, 0),
    }


def mixture_quantile(
    means: Float[Array, "draws *rows"],
    sds: Float[Array, "draws *rows"],
    probability: Float[Array, ""],
) -> Float[Array, "*rows"]:
    """Return a quantile of an equal mixture of normals, by Newton's steps within a bracket.

    It lies between the smallest and the largest of the components' own quantiles. A step that
    leaves the bracket, and every third step, halves it, so that gaps between modes are no trap.
    """
    # Of the smaller tail, in which a distribution function keeps its digits.
    side = jnp.where(probability > 0.5, -1, 1).astype(means.dtype)
    tail = jnp.minimum(probability, 1 - probability).astype(means.dtype)
    means = side * means
    deviate = jax.scipy.special.ndtri(tail)
    own = means + sds * deviate
    low, high = jnp.min(own, axis=0), jnp.max(own, axis=0)
    sd = jnp.sqrt(jnp.mean(sds**2, axis=0) + jnp.var(means, axis=0))
    start = jnp.clip(jnp.mean(means, axis=0) + sd * deviate, low, high)
    epsilon = float(jnp.finfo(means.dtype).eps)

    def is_unfinished(carry):
        i, _, _, _, is_done = carry
        return (i < _MOST_STEPS) & ~jnp.all(is_done)

    def improve(carry):
        i, low, high, x, is_done = carry
        z = (x[None] - means) / sds
        missing = tail - jnp.mean(jax.scipy.special.ndtr(z), axis=0)
        density = jnp.mean(jax.scipy.stats.norm.pdf(z) / sds, axis=0)
        low, high = jnp.where(missing > 0, x, low), jnp.where(missing > 0, high, x)
        newton = x + missing / jnp.maximum(density, jnp.finfo(means.dtype).tiny)
        is_inside = (newton > low) & (newton < high) & (i % 3 != 2)
        is_done |= jnp.abs(missing) <= 4 * epsilon * tail
        is_done |= high - low <= 2 * epsilon * jnp.maximum(jnp.abs(low), jnp.abs(high))
        better = jnp.where(is_inside, newton, low + (high - low) / 2)
        return i + 1, low, high, jnp.where(is_done, x, better), is_done

    carry = (jnp.zeros((), jnp.int32), low, high, start, jnp.zeros(start.shape, bool))
    return side * jax.lax.while_loop(is_unfinished, improve, carry)[3]


def _entropy(probabilities: Float[Array, "*rows classes"]) -> Float[Array, "*rows"]:
    return -jnp.sum(jax.scipy.special.xlogy(probabilities, probabilities), axis=-1)
