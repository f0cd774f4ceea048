"""Networks inside NumPyro models: one sample site for each parameter array, any prior."""

from typing import Any

import jax
import numpyro
from jax.tree_util import keystr, tree_map_with_path
from jaxtyping import PyTree

from jaxbnn.networks import Network, parameter_shapes
from jaxbnn.targets import expand_prior
from jaxbnn.targets.prior_trees import is_distribution


def sample_network(name: str, network: Network | PyTree, prior: PyTree) -> PyTree:
    """Draw a network's parameters inside a NumPyro model, one site for each array.

    Parameters
    ----------
    name
        The sites are called `name.0.w`, `name.0.b`, ...
    network
        A `Network`, or parameters (arrays or their shapes) of any other kind.
    prior
        Any NumPyro distributions: one for everything, or a PyTree shaped like the parameters or a
        prefix of that. They may depend on other sites of the model.

    Returns
    -------
    The parameters, for `network.apply(params, x)`.

    Raises
    ------
    ValueError
        If the prior is not shaped like the parameters.
    TypeError
        If a leaf of the prior is no distribution.

    Examples
    --------
    >>> import jaxbnn, numpyro.distributions as dist
    >>> def model(x):
    ...     scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    ...     params = sample_network("net", jaxbnn.mlp((1, 3, 1)), dist.Normal(0.0, scale))
    ...     return jaxbnn.mlp((1, 3, 1)).apply(params, x)
    >>> import jax.numpy as jnp
    >>> numpyro.handlers.seed(model, 0)(jnp.ones((5, 1))).shape
    (5, 1)
    """
    expanded = expand_prior(prior, network)
    names = _named(name, jax.tree.map(lambda d: d, expanded, is_leaf=is_distribution))
    return jax.tree.map(numpyro.sample, names, expanded)


def site_names(name: str, network: Network | PyTree) -> PyTree:
    """Return the names of a network's sites in the places of its parameters.

    It is the `layout` that `kernel` needs to run kernels of a network's parameters, such as
    `symmetry_moves`.

    Parameters
    ----------
    name, network
        As in `sample_network`.

    Raises
    ------
    TypeError
        The network is not a `Network`.

    Examples
    --------
    >>> import jaxbnn
    >>> site_names("net", jaxbnn.mlp((1, 1)))
    ({'b': 'net.0.b', 'w': 'net.0.w'},)
    """
    shapes: Any = parameter_shapes(network) if isinstance(network, Network) else network
    return _named(name, shapes)


def _named(name: str, tree: PyTree) -> PyTree:
    def full(path, _):
        inside = keystr(path, simple=True, separator=".")
        return f"{name}.{inside}" if inside else name

    return tree_map_with_path(full, tree, is_leaf=is_distribution)
