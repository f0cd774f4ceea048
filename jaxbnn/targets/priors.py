"""The usual priors: PyTrees of NumPyro distributions shaped like the parameters."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.tree_util import keystr
from jaxtyping import ArrayLike, PyTree

from jaxbnn.networks import Network
from jaxbnn.numerics import check_positive, check_real, is_concrete
from jaxbnn.targets.prior_trees import expand_prior, leaf_shape, leaves_and_structure

Precision = ArrayLike | Sequence[ArrayLike]


def normal_prior(
    network_or_params: Network | PyTree,
    *,
    weight_precision: Precision = 1.0,
    bias_precision: Precision = 1.0,
    mean: PyTree = 0.0,
) -> PyTree:
    """Return independent normal priors, p_i ~ N(mean, 1 / precision).

    Parameters
    ----------
    network_or_params
        A network, or parameters (arrays or their shapes) in any PyTree. Leaves called "b" or
        "bias" are biases, all others weights; a layer is a container that holds leaves, in the
        order of `jax.tree.leaves`.
    weight_precision, bias_precision
        1 / variance: a number, or one per layer that has parameters. May be traced.
    mean
        A number, or a PyTree shaped like the parameters. May be traced.

    Returns
    -------
    A PyTree of NumPyro distributions shaped like the parameters.

    Raises
    ------
    ValueError
        If a precision is not positive, their number is not that of the layers, or a mean does not
        have the shape of its parameter.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> prior = normal_prior(mlp((4, 3, 3)), weight_precision=4.0)
    >>> prior[0]["w"].event_shape, float(prior[0]["w"].variance[0, 0])
    ((4, 3), 0.25)
    """
    leaves, treedef = leaves_and_structure(network_or_params)
    layers = list(dict.fromkeys(path[:-1] for path, _ in leaves))
    precisions = {
        name: _per_layer(name, value, len(layers))
        for name, value in (
            ("weight_precision", weight_precision),
            ("bias_precision", bias_precision),
        )
    }
    one_mean = jax.tree.structure(mean) != treedef
    if one_mean and not (jax.tree_util.all_leaves([mean]) and jnp.ndim(mean) == 0):
        raise ValueError(
            "mean must be a number or shaped like the parameters, but has the structure "
            f"{jax.tree.structure(mean)}; give one entry per parameter."
        )
    means = [mean] * len(leaves) if one_mean else jax.tree.leaves(mean)
    priors = []
    for (path, leaf), leaf_mean in zip(leaves, means, strict=True):
        check_real("mean" if one_mean else f"mean{keystr(path)}", leaf_mean)
        if jnp.ndim(leaf_mean) and jnp.shape(leaf_mean) != leaf_shape(leaf):
            raise ValueError(
                f"mean{keystr(path)} has shape {jnp.shape(leaf_mean)}, but its parameter has shape "
                f"{leaf_shape(leaf)}; give a number or a mean of that shape."
            )
        name = "bias_precision" if is_bias(path) else "weight_precision"
        precision = precisions[name][layers.index(path[:-1])]
        normal = dist.Normal(leaf_mean, 1 / jnp.sqrt(precision))
        priors.append(normal.expand(leaf_shape(leaf)).to_event())
    return jax.tree.unflatten(treedef, priors)


def uniform_prior(network_or_params: Network | PyTree, low: ArrayLike, high: ArrayLike) -> PyTree:
    """Return independent uniform priors on the box low <= p_i <= high; -inf outside.

    Parameters
    ----------
    network_or_params
        A network, or parameters (arrays or their shapes) in any PyTree.
    low, high
        Numbers; may be traced.

    Returns
    -------
    A PyTree of NumPyro distributions shaped like the parameters.

    Raises
    ------
    ValueError
        If low is not smaller than high, or one of them is not finite.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> prior = uniform_prior(mlp((2, 1)), -2.0, 2.0)
    >>> round(float(prior[0]["w"].log_prob(jnp.ones((2, 1)))), 4)  # 2 log(1 / 4)
    -2.7726
    """
    for name, end in (("low", low), ("high", high)):
        check_real(name, end)
        if jnp.ndim(end):
            raise ValueError(f"{name} must be one number, but has shape {jnp.shape(end)}.")
    if is_concrete((low, high)):
        lower, upper = np.asarray(low), np.asarray(high)
        if not (np.isfinite([lower, upper]).all() and lower < upper):
            raise ValueError(
                f"low must be smaller than high, and both finite, but low is {lower:g} and high is "
                f"{upper:g}; give an interval of positive length."
            )
    return expand_prior(dist.Uniform(low, high), network_or_params)


def is_bias(path: tuple) -> bool:
    """Whether a parameter at this path is a bias, which its name says.

    Examples
    --------
    >>> is_bias((jax.tree_util.DictKey("b"),)), is_bias((jax.tree_util.DictKey("w"),))
    (True, False)
    """
    last = path[-1] if path else None
    return getattr(last, "key", getattr(last, "name", None)) in ("b", "bias")


def _per_layer(name: str, value: Precision, num_layers: int) -> list:
    """Return one number per layer; a sequence may mix traced and concrete numbers."""
    if isinstance(value, Sequence):
        per_layer = list(value)
    else:
        check_positive(name, value)
        array = jnp.asarray(value)
        if array.ndim == 0:
            return [value] * num_layers
        if array.ndim > 1:
            raise ValueError(
                f"{name} must be a number or one per layer, but has shape {array.shape}; "
                f"give {num_layers} numbers."
            )
        per_layer = list(array)
    if len(per_layer) != num_layers:
        raise ValueError(
            f"{name} has {len(per_layer)} entries for {num_layers} layers with parameters; give "
            "a number or one entry per such layer."
        )
    for index, entry in enumerate(per_layer):
        check_positive(f"{name}[{index}]", entry)
    return per_layer
