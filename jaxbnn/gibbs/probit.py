"""The conditional of probit logits given the label.

Multinomial: label = argmax_a z_a with z ~ N(mean, D I). First z_label, bounded below by the
others, then all others at once, bounded above by it: given z_label they are independent
(Piccioli et al., (48)-(51), with the sum that erratum A8 adds). Binary: label = [z > 0].
"""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Integer, PRNGKeyArray

from jaxbnn.gibbs.arguments import check_arrays, check_labels
from jaxbnn.numerics import truncated_normal_from_mode, uniform_open
from jaxbnn.numerics.arguments import check_key


def sample_logits(
    key: PRNGKeyArray,
    mean: Float[Array, "classes n"],
    logits: Float[Array, "classes n"],
    labels: Integer[Array, " n"],
    noise_variance: ArrayLike,
) -> Float[Array, "classes n"]:
    """Draw logits ~ N(mean, noise_variance) given that the label's is the largest: a Gibbs update.

    Parameters
    ----------
    key
        A PRNG key.
    mean
        What the last layer gives without noise, its bias included.
    logits
        The current ones: the label's new logit is bounded by those of the other classes.
    labels
        Classes from 0.
    noise_variance
        D, that of the last layer's noise.

    Raises
    ------
    ValueError
        Labels that are no whole numbers (n,), or logits of another shape than (classes, n), two
        classes at least.
    TypeError
        Logits that are not float32 or float64.

    Examples
    --------
    >>> import jax
    >>> mean = jnp.zeros((3, 2))
    >>> z = sample_logits(jax.random.key(0), mean, mean, jnp.array([2, 0]), 1.0)
    >>> jnp.argmax(z, axis=0).tolist()
    [2, 0]
    """
    check_key("key", key)
    labels = check_labels(mean, labels, noise_variance, logits=logits)
    if mean.shape[0] < 2:
        raise ValueError(
            "sample_logits needs a row of logits for each of two classes or more, but has one; "
            "use sample_binary_logit."
        )
    scale = jnp.sqrt(jnp.asarray(noise_variance, mean.dtype))
    is_label = _is_label(mean, labels)
    uniform = uniform_open(key, mean.shape, mean.dtype)
    largest = jnp.max(jnp.where(is_label, -jnp.inf, logits), axis=0, keepdims=True)

    def of_label(values):
        return jnp.sum(jnp.where(is_label, values, 0), axis=0, keepdims=True)

    own = _above(of_label(uniform), largest, of_label(mean), scale)
    others = -_above(uniform, -own, -mean, scale)
    return jnp.where(is_label, own, others)


def sample_binary_logit(
    key: PRNGKeyArray,
    mean: Float[Array, "*one n"],
    labels: Integer[Array, " n"],
    noise_variance: ArrayLike,
) -> Float[Array, "*one n"]:
    """Draw z ~ N(mean, noise_variance) given z > 0 for label 1 and z < 0 for label 0.

    Parameters
    ----------
    key, mean, noise_variance
        As in `sample_logits`.
    labels
        0 or 1.

    Raises
    ------
    ValueError
        Labels that are no whole numbers (n,), or logits of another shape than (n,) or (1, n).
    TypeError
        Logits that are not float32 or float64.

    Examples
    --------
    >>> import jax
    >>> z = sample_binary_logit(jax.random.key(0), jnp.zeros((1, 2)), jnp.array([1, 0]), 1.0)
    >>> (z[0] > 0).tolist()
    [True, False]
    """
    check_key("key", key)
    check_arrays(mean=mean)
    rows = mean[None] if jnp.ndim(mean) == 1 else mean
    labels = check_labels(rows, labels, noise_variance)
    if jnp.ndim(mean) == 2 and mean.shape[0] != 1:
        raise ValueError(
            f"sample_binary_logit needs logits (n,) or (1, n), but they are {mean.shape}; use "
            "sample_logits."
        )
    scale = jnp.sqrt(jnp.asarray(noise_variance, mean.dtype))
    uniform = uniform_open(key, mean.shape, mean.dtype)
    side = jnp.where(labels > 0, 1, -1).astype(mean.dtype)
    side = jnp.broadcast_to(side, mean.shape)
    return side * _above(uniform, jnp.zeros_like(mean), side * mean, scale)


def satisfying_logits(
    logits: Float[Array, "classes n"], labels: Integer[Array, " n"]
) -> Float[Array, "classes n"]:
    """Raise the label's logit to the largest where it is smaller, so that the label is possible.

    One row of logits is binary: those on the wrong side of zero are moved to zero.

    Parameters
    ----------
    logits
        One row a class; a single row is binary.
    labels
        Classes 0..C-1; of binary ones 1 is above zero.

    Raises
    ------
    ValueError
        Labels that are no whole numbers (n,), or logits of another shape than (classes, n).
    TypeError
        Logits that are not float32 or float64.

    Examples
    --------
    >>> satisfying_logits(jnp.array([[1.0], [3.0]]), jnp.array([0])).tolist()
    [[3.0], [3.0]]
    """
    labels = check_labels(logits, labels, 1.0)
    if logits.shape[0] == 1:
        is_one = (labels > 0)[None, :]
        return jnp.where(is_one, jnp.maximum(logits, 0), jnp.minimum(logits, 0))
    return jnp.where(_is_label(logits, labels), jnp.max(logits, axis=0, keepdims=True), logits)


def _is_label(logits: Array, labels: Array) -> Bool[Array, "classes n"]:
    """Say of each logit whether it is its label's; labels of few bits do not hold all classes."""
    classes = jnp.arange(logits.shape[0], dtype=jnp.int32)
    return classes[:, None] == labels[None, :].astype(jnp.int32)


def _above(uniform: Array, low: Array, mean: Array, scale: Array) -> Array:
    """Draw from N(mean, scale^2) above `low`."""
    edge = (low - mean) / scale
    draw = jnp.maximum(mean, low) + scale * truncated_normal_from_mode(uniform, edge)
    return jnp.maximum(draw, low)
