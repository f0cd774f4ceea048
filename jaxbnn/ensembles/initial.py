"""Where training begins: weights of a size that lets a signal through, in the prior's place.

A draw of the prior N(0, 1) on every weight makes a deep network of ReLUs whose outputs are many
times the targets: a layer of sixteen units multiplies a signal's variance by eight. Training from
there begins with wild gradients. Networks therefore begin with weights of variance 1 / fan_in.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PRNGKeyArray, PyTree

from jaxbnn.networks import Network
from jaxbnn.networks.shapes import fan_in
from jaxbnn.numerics import check_finite, is_concrete, standard_normal
from jaxbnn.numerics.arguments import short
from jaxbnn.numerics.checks import check_float
from jaxbnn.sampling.order import ordered, restored
from jaxbnn.targets import HierarchicalPrior, Posterior


def initial_positions(keys: Key[Array, " chain"], posterior: Posterior) -> PyTree:
    """Return positions to train from, one a key: leaves (chain, ...).

    The weights of a `Network` are as `jaxbnn.networks.init` draws them, N(0, 1 / fan_in) with
    biases 0 (all N(0, 1) in the NTK parametrisation). Those of another function (arrays of two or
    more axes, inputs before outputs) are the prior's draw shrunk to a root mean square of at most
    fan_in^(-1/2). What the likelihood learns begins at its prior's mean: from a small noise scale
    training fits the training rows alone. All else is drawn from the prior, and so is everything
    where the prior has no density at such weights.

    Parameters
    ----------
    keys
        One a chain.
    posterior
        The posterior.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> from jaxbnn.networks import mlp
    >>> from jaxbnn.targets import Gaussian
    >>> x, y = jnp.ones((2, 400)), jnp.zeros(2)
    >>> posterior = Posterior(mlp((400, 1)), dist.Normal(0, 1), Gaussian(1.0), x, y)
    >>> (layer,) = initial_positions(jax.random.split(jax.random.key(0), 3), posterior)
    >>> layer["w"].shape, round(float(jnp.std(layer["w"])), 2), float(layer["b"][0, 0])
    ((3, 400, 1), 0.05, 0.0)
    """
    starts, has_density, other_keys = _draw(keys, ordered(posterior))
    if np.asarray(has_density).all():
        return starts
    draws = jax.vmap(posterior.sample_prior)(other_keys)
    return jax.vmap(lambda ok, *trees: jax.tree.map(functools.partial(jnp.where, ok), *trees))(
        has_density, starts, draws
    )


@jax.jit
def _draw(keys: Any, posterior: Any) -> tuple[PyTree, Array, Any]:
    posterior = restored(posterior)

    def one(key):
        key_prior, key_network, key_other = jax.random.split(key, 3)
        draw = posterior.sample_prior(key_prior)  # what is not used of it is not compiled
        params = _network_parameters(posterior, draw)
        if isinstance(posterior.network, Network):
            params = _like_init(key_network, posterior.network, params)
        else:
            params = jax.tree.map(_shrunk, params)
        start = _with_parameters(posterior, draw, params)
        if posterior.likelihood.learned:
            start = start | {
                name: _at_mean(_own_priors(posterior)[name], start[name])
                for name in posterior.likelihood.learned
            }
        return start, jnp.isfinite(posterior.log_prior(start)), key_other

    return jax.vmap(one)(keys)


def check_starts(positions: PyTree, posterior: Posterior, num_chains: int) -> PyTree:
    """Return the starts that were given as arrays; raise unless they are the posterior's, stacked.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> from jaxbnn.networks import mlp
    >>> from jaxbnn.targets import Gaussian
    >>> x, y = jnp.ones((2, 1)), jnp.zeros(2)
    >>> posterior = Posterior(mlp((1, 1)), dist.Normal(0, 1), Gaussian(1.0), x, y)
    >>> check_starts(({"w": jnp.ones((1, 1)), "b": jnp.ones(1)},), posterior, 3)
    Traceback (most recent call last):
    ValueError: positions[0]['b'] has shape (1,), but 3 chains of this posterior have (3, 1); ...
    """
    if not is_concrete(positions):
        raise ValueError("positions must be arrays with values; call this outside jit.")
    check_finite("positions", positions, "start every chain from finite numbers")
    wanted = jax.eval_shape(lambda k: posterior.sample_prior(k, (num_chains,)), jax.random.key(0))
    found: Any = jax.tree.structure(positions)
    if found != jax.tree.structure(wanted):
        raise ValueError(
            f"positions must be arranged as draws of posterior.sample_prior(key, ({num_chains},)) "
            f"are, {short(jax.tree.structure(wanted))}, but are {short(found)}."
        )

    def checked(path: Any, leaf: Any, like: Any) -> Array:
        array = jnp.asarray(leaf)
        if array.shape != like.shape:
            raise ValueError(
                f"positions{jax.tree_util.keystr(path)} has shape {array.shape}, but {num_chains} "
                f"chains of this posterior have {like.shape}; stack the starts of all chains."
            )
        return array.astype(like.dtype)

    return jax.tree_util.tree_map_with_path(checked, positions, wanted)


def check_precision(positions: PyTree) -> None:
    """Raise TypeError for positions of half precision, which no decomposition of a matrix takes."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(positions):
        check_float(f"positions{jax.tree_util.keystr(path)}", leaf)


def _network_parameters(posterior: Posterior, position: Any) -> PyTree:
    if isinstance(posterior.prior, HierarchicalPrior):
        return posterior.prior.network_parameters(position)
    return position["network"] if posterior.likelihood.learned else position


def _with_parameters(posterior: Posterior, position: Any, params: PyTree) -> PyTree:
    if isinstance(posterior.prior, HierarchicalPrior):
        return position | {"network": posterior.prior.standardised(position, params)}
    return position | {"network": params} if posterior.likelihood.learned else params


def _own_priors(posterior: Posterior) -> Any:
    """Return the priors of what the likelihood learns, by name."""
    prior: Any = posterior.prior
    return prior.likelihood if isinstance(prior, HierarchicalPrior) else prior


def _at_mean(prior: Any, draw: Array) -> Array:
    """Return the prior's mean, or the draw where there is no finite one, or none is known."""
    try:
        mean = prior.mean
    except NotImplementedError:  # NumPyro's, of a transformed law say
        return draw
    mean = jnp.broadcast_to(jnp.asarray(mean, draw.dtype), draw.shape)
    return jnp.where(jnp.isfinite(mean), mean, draw)


def _like_init(key: PRNGKeyArray, network: Network, params: PyTree) -> PyTree:
    """Draw from the law of `jaxbnn.networks.init`."""
    # By one vector: each draw is half a second to compile, and a network has many arrays.
    leaves, structure = jax.tree_util.tree_flatten_with_path(params)
    if not leaves:
        return params
    sizes = [leaf.size for _, leaf in leaves]
    dtype = leaves[0][1].dtype
    flat = standard_normal(key, (sum(sizes),), dtype)
    drawn = []
    for (path, leaf), part in zip(leaves, jnp.split(flat, np.cumsum(sizes)[:-1]), strict=True):
        if network.parametrisation == "ntk":
            drawn.append(part.reshape(leaf.shape))
        elif path[-1].key == "b":
            drawn.append(jnp.zeros_like(leaf))
        else:
            drawn.append(part.reshape(leaf.shape) / math.sqrt(fan_in(leaf.shape)))
    return jax.tree.unflatten(structure, drawn)


def _shrunk(weights: Array) -> Array:
    if weights.ndim < 2 or weights.size == 0:
        return weights
    size = jnp.sqrt(jnp.mean(jnp.square(weights)))
    most = 1 / math.sqrt(fan_in(weights.shape))
    return weights * jnp.where(size > most, most / size, 1).astype(weights.dtype)
