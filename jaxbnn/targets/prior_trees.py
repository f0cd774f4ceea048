"""PyTrees of distributions: expanded to the parameters' shapes, checked against them, drawn from.

Every leaf's event covers its whole parameter, so `leaf.log_prob(parameter)` is a scalar. A NumPyro
distribution is itself a PyTree: map over a prior with `is_leaf=is_distribution`.
"""

import abc
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
from jax.tree_util import keystr, tree_leaves_with_path, tree_map_with_path
from jaxtyping import Array, PyTree

from jaxbnn.networks import Network, parameter_shapes
from jaxbnn.numerics.arguments import typed_key


class JointPrior(abc.ABC):
    """A prior of a position {"network": ..., name: ...} whose parts depend on each other."""

    names: Any  # of the parts, "network" first

    @abc.abstractmethod
    def network_parameters(self, position: Any) -> PyTree:
        """Return the network's parameters at a position."""

    @abc.abstractmethod
    def log_prob(self, position: Any) -> Array:
        """Return the log density of a position."""

    @abc.abstractmethod
    def log_ratio(self, reference: Any) -> Any:
        """Return the function position -> log_prob(position) - log_prob(reference)."""

    @abc.abstractmethod
    def sample(self, rng_key: Any) -> PyTree:
        """Return one draw of a position."""

    @abc.abstractmethod
    def shapes(self) -> PyTree:
        """Return the shapes of a position."""

    @abc.abstractmethod
    def why_refused(self) -> str:
        """Return a sentence for whoever needs independent parameters."""


def expand_prior(prior: PyTree, network_or_params: Network | PyTree) -> PyTree:
    """Return the prior with every distribution's event expanded to its parameter's shape.

    Parameters
    ----------
    prior
        A PyTree of NumPyro distributions shaped like the parameters or a prefix of that: a
        distribution in the place of a layer, or of everything, stands for every parameter there.
        `dist.Normal(0, 1)` is expanded to independent copies; a multivariate one must match the
        parameter's last axes and is repeated over the others.
    network_or_params
        A network, or parameters (arrays or their shapes) in any PyTree.

    Returns
    -------
    A PyTree of NumPyro distributions, each with its whole parameter as its event.

    Raises
    ------
    ValueError
        If the prior is not shaped like the parameters, naming the leaf, or is hierarchical.
    TypeError
        If a leaf is not a NumPyro distribution.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> expand_prior(dist.Laplace(0.0, 1.0), mlp((2, 1)))[0]["w"].event_shape
    (2, 1)
    """
    if isinstance(prior, JointPrior):
        raise ValueError(prior.why_refused())
    leaves, treedef = leaves_and_structure(network_or_params)
    shapes = jax.tree.unflatten(treedef, [leaf for _, leaf in leaves])
    prior_paths = _checked_paths(prior)
    paths = [path for path, _ in leaves]
    for path in paths:
        if not any(path[: len(short)] == short for short in prior_paths):
            raise ValueError(
                f"prior has no distribution for the parameter {keystr(path)}; shape the prior "
                "like the parameters."
            )
    for short in prior_paths:
        if not any(path[: len(short)] == short for path in paths):
            raise ValueError(
                f"prior has a distribution at {keystr(short)}, where there is no parameter; shape "
                "the prior like the parameters."
            )

    def expand(path, distribution, below):
        return tree_map_with_path(
            lambda rest, leaf: _expand(
                distribution, leaf_shape(leaf), f"prior{keystr(path + rest)}"
            ),
            below,
        )

    try:
        return tree_map_with_path(expand, prior, shapes, is_leaf=is_distribution)
    except ValueError as error:
        if str(error).startswith("prior"):
            raise
        raise ValueError(
            "prior must consist of the same tuples, lists and dicts as the parameters, but it is "
            f"{jax.tree.structure(prior, is_leaf=is_distribution)} where they are {treedef}."
        ) from None


def is_distribution(node: Any) -> bool:
    """Whether a node of a prior is a distribution, where a map over the prior has to stop.

    Examples
    --------
    >>> is_distribution(dist.Normal(0.0, 1.0))
    True
    """
    return isinstance(node, dist.Distribution)


def prior_shapes(prior: PyTree) -> PyTree:
    """Return the shapes of the parameters that a prior describes by itself.

    Examples
    --------
    >>> prior_shapes({"w": dist.Normal(0.0, 1.0).expand((2, 1))})["w"].shape
    (2, 1)
    """
    if isinstance(prior, JointPrior):
        return prior.shapes()
    _checked_paths(prior)
    return jax.tree.map(
        lambda d: jax.ShapeDtypeStruct(d.shape(), float), prior, is_leaf=is_distribution
    )


def sample_prior(rng_key: Array, prior: PyTree, shape: tuple[int, ...] = ()) -> PyTree:
    """Return draws of the parameters, each leaf with `shape` before the parameter's own.

    Examples
    --------
    >>> prior = {"w": dist.Normal(0.0, 1.0).expand((2, 1)).to_event()}
    >>> sample_prior(jax.random.key(0), prior, (5,))["w"].shape
    (5, 2, 1)
    """
    distributions, treedef = jax.tree.flatten(prior, is_leaf=is_distribution)
    rng_key = typed_key(rng_key)

    def draw(key):
        if isinstance(prior, JointPrior):
            return prior.sample(key)
        keys = jax.random.split(key, len(distributions))
        return jax.tree.unflatten(
            treedef, [d.sample(k) for d, k in zip(distributions, keys, strict=True)]
        )

    if not shape:
        return draw(rng_key)
    draws = jax.vmap(draw)(jax.random.split(rng_key, int(np.prod(shape))))
    return jax.tree.map(lambda leaf: leaf.reshape(shape + leaf.shape[1:]), draws)


def leaves_and_structure(network_or_params: Any) -> tuple[list, Any]:
    """Return (path, leaf) pairs and the structure of parameters or of a network's."""
    if isinstance(network_or_params, Network):
        network_or_params = parameter_shapes(network_or_params)
    return tree_leaves_with_path(network_or_params), jax.tree.structure(network_or_params)


def leaf_shape(leaf: Any) -> tuple[int, ...]:
    """Return the shape of an array or of what describes one."""
    return tuple(getattr(leaf, "shape", ()))


def _checked_paths(prior: PyTree) -> list[tuple]:
    """Return the paths of the distributions in a prior; anything else in it is an error."""
    leaves = tree_leaves_with_path(prior, is_leaf=is_distribution)
    for path, leaf in leaves:
        if not is_distribution(leaf):
            raise TypeError(
                f"prior{keystr(path)} is of type {type(leaf).__name__}, not a NumPyro "
                "distribution; give one, for instance numpyro.distributions.Normal(0, 1)."
            )
    return [path for path, _ in leaves]


def _expand(distribution: Any, shape: tuple[int, ...], name: str) -> dist.Distribution:
    batch_ndim = len(shape) - distribution.event_dim
    batch, event = shape[: max(batch_ndim, 0)], shape[max(batch_ndim, 0) :]
    own = distribution.batch_shape
    fits = len(own) <= len(batch) and all(
        a in (1, b) for a, b in zip(own[::-1], batch[::-1], strict=False)
    )
    if event != distribution.event_shape or not fits:
        raise ValueError(
            f"{name} draws values of shape {distribution.shape()}, but the parameter has shape "
            f"{shape}; give a distribution of that shape, or of a single number."
        )
    if own != batch:
        distribution = distribution.expand(batch)
    return distribution.to_event(len(batch)) if batch else distribution
