"""Starts by optimisation: a network with units to spare is trained, merged and trained again.

Descent on a network of the posterior's own width ends where a sampler is trapped too: one unit in
the place of two, two in the place of one. With units to spare it seldom does. Those that point the
same way are then one unit: for an activation that is homogeneous,

    v_i f(w_i x) + v_j f(w_j x) -> (v_i' + v_j') f(w x),   v_i' = |w_i| v_i,   |w| = 1,

with w the mean of both directions, by the size of what they contribute. Pairs are merged one after
the other, the one that changes the outputs least first, and the network trained between.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Shaped

from jaxbnn.gibbs import GibbsPosition, IntermediateNoise
from jaxbnn.gibbs.validation import check_data, check_model
from jaxbnn.networks import Activation, Dense, Network, parameter_shapes
from jaxbnn.numerics import check_count
from jaxbnn.numerics.arguments import check_key, check_optimizer
from jaxbnn.numerics.arrays import as_array
from jaxbnn.numerics.products import product
from jaxbnn.thermalization.posteriors import classical_posterior

HOMOGENEOUS = ("relu", "leaky_relu", "abs", "identity")


def optimised_start(
    key: PRNGKeyArray,
    model: IntermediateNoise,
    x: Shaped[Array | np.ndarray, "n ..."],
    y: Shaped[Array | np.ndarray, "n ..."],
    *,
    optimizer: optax.GradientTransformation | None = None,
    num_updates: int = 3000,
    num_extra: int | None = None,
    num_refits: int = 300,
) -> GibbsPosition:
    """Train a network on the data, draw latents given its weights, and return both as a start.

    Maximises the density of `classical_posterior`, from weights drawn from the prior. All data are
    used in every update. Works under `jit` and `vmap`, over keys and data sets.

    Parameters
    ----------
    key
        One key: of the first weights and of the latents.
    model
        The model.
    x, y
        Data, rows first.
    optimizer
        Of Optax; None: Adam, its rate falling by a cosine from 0.01.
    num_updates
        Of the wide network, and of the last fit.
    num_extra
        Hidden units to spare: as many as the model has if None and the network can be merged, one
        hidden layer with a homogeneous activation; none for other networks.
    num_refits
        Updates after each pair merged.

    Returns
    -------
    Weights of the model's own network, and latents.

    Raises
    ------
    ValueError
        Units to spare for a network that cannot be merged, no updates, or data that do not fit.
    TypeError
        Data that are not real numbers; an optimizer that needs more than gradients, its state and
        the parameters.

    Notes
    -----
    The posterior is that of Piccioli et al., (7); optimised starts are not in the paper.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> model = IntermediateNoise(mlp((2, 3, 1)), 0.01)
    >>> x, y = jax.random.normal(jax.random.key(0), (20, 2)), jnp.ones((20, 1))
    >>> start = optimised_start(jax.random.key(1), model, x, y, num_updates=200, num_refits=20)
    >>> start.params[0]["w"].shape
    (2, 3)
    >>> bool(jnp.mean((model.network.apply(start.params, x) - y) ** 2) < 0.1)
    True
    """
    check_model(model)
    check_key("key", key)
    if optimizer is not None:
        check_optimizer(optimizer, parameter_shapes(model.network))
    check_count("num_updates", num_updates)
    check_count("num_refits", num_refits)
    check_data(model, x, y)
    x, y = as_array(x), as_array(y)
    most = _mergeable_units(model.network)
    num_extra = most if num_extra is None else num_extra
    check_count("num_extra", num_extra, least=0)
    if num_extra and not most:
        raise ValueError(
            "units can be merged in a network of one hidden layer with biases, and relu, "
            "leaky_relu, abs or identity, only; give num_extra=0 for this one."
        )
    key_weights, key_latents = jax.random.split(key)
    wide = dataclasses.replace(model, network=_widened(model.network, num_extra))
    posterior = classical_posterior(wide, x, y)
    params = wide.sample_prior(key_weights, x.dtype)
    params = _trained(posterior, params, optimizer, num_updates)
    if num_extra:
        params = _merged(posterior, params, num_extra, optimizer, num_refits)
        params = _trained(classical_posterior(model, x, y), params, optimizer, num_updates)
    return model.position_from_weights(key_latents, params, x, y)


def merge_cost(params: PyTree) -> Float[Array, "units units"]:
    """Return about how far the outputs change if units i and j are one: inf for i = j.

    Parameters
    ----------
    params
        Of a network of one hidden layer.

    Examples
    --------
    >>> first = {"w": jnp.array([[3.0, 1.0, 0.0]]), "b": jnp.array([0.0, 0.0, 1.0])}
    >>> merge_cost((first, (), {"w": jnp.ones((3, 1)), "b": jnp.zeros(1)}))[0].tolist()
    [inf, 0.0, 2.25]
    """
    directions, effects = _polar(params)
    size = jnp.sqrt(jnp.sum(jnp.square(effects), axis=1))
    total = size[:, None] + size[None]
    share = size[:, None] * size[None] / jnp.where(total > 0, total, 1)
    apart = jnp.sum(jnp.square(directions[:, :, None] - directions[:, None, :]), axis=0)
    # With the mean direction the change is of second order in the angle, of first where the two
    # counteract each other.
    agree = product(effects, effects.T) > 0
    cost = jnp.square(share) * jnp.where(agree, jnp.square(apart), apart)
    return jnp.where(jnp.eye(len(size), dtype=bool), jnp.inf, cost)


def merge_pair(params: PyTree, i: Any, j: Any) -> PyTree:
    """Return the network with what units i and j do done by i, and j without any effect.

    Parameters
    ----------
    params
        Of a network of one hidden layer.
    i, j
        Numbers of two units; may be traced.

    Examples
    --------
    >>> first = {"w": jnp.array([[3.0, 1.0]]), "b": jnp.zeros(2)}
    >>> merged = merge_pair((first, (), {"w": jnp.ones((2, 1)), "b": jnp.zeros(1)}), 0, 1)
    >>> float(merged[0]["w"][0, 0] * merged[2]["w"][0, 0]), merged[2]["w"][1].tolist()
    (4.0, [0.0])
    """
    first, between, last = params
    directions, effects = _polar(params)
    size = jnp.sqrt(jnp.sum(jnp.square(effects), axis=1))
    mean = size[i] * directions[:, i] + size[j] * directions[:, j]
    length = jnp.sqrt(jnp.sum(jnp.square(mean)))
    direction = jnp.where(length > 0, mean / jnp.where(length > 0, length, 1), directions[:, i])
    effect = effects[i] + effects[j]
    # Incoming and outgoing weights of one size, as the prior would have them.
    scale = jnp.sqrt(jnp.sqrt(jnp.sum(jnp.square(effect))) + 1e-12)
    w = first["w"].at[:, i].set(scale * direction[:-1]).at[:, j].set(0)
    b = first["b"].at[i].set(scale * direction[-1]).at[j].set(0)
    v = last["w"].at[i].set(effect / scale).at[j].set(0)
    return {"w": w, "b": b}, between, {**last, "w": v}


def _mergeable_units(network: Network) -> int:
    """Return the hidden units of a network in which pairs of them can be merged, else 0."""
    if len(network.layers) != 3:
        return 0
    first, between, last = network.layers
    if not (isinstance(first, Dense) and first.bias and isinstance(last, Dense)):
        return 0
    is_homogeneous = isinstance(between, Activation) and between.function in HOMOGENEOUS
    return first.features if is_homogeneous else 0


def _widened(network: Network, num_extra: int) -> Network:
    if not num_extra:
        return network
    first = network.layers[0]
    assert isinstance(first, Dense)
    wider = dataclasses.replace(first, features=first.features + num_extra)
    return Network((wider, *network.layers[1:]), network.input_shape)


def _trained(posterior, params, optimizer, num_updates, mask=None) -> PyTree:
    """Maximise the density; entries with mask 0 stay as they are."""
    if mask is None:
        mask = jax.tree.map(jnp.ones_like, params)
    if optimizer is None:
        optimizer = optax.adam(optax.cosine_decay_schedule(0.01, num_updates, 1e-3))
    num_data = len(posterior.x)

    def update(_, carry):
        params, state = carry
        grads = jax.grad(lambda p: -posterior.log_density(p) / num_data)(params)
        grads = jax.tree.map(jnp.multiply, grads, mask)
        changes, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, jax.tree.map(jnp.multiply, changes, mask)), state

    return jax.lax.fori_loop(0, num_updates, update, (params, optimizer.init(params)))[0]


def _merged(posterior, params, num_extra, optimizer, num_refits) -> PyTree:
    """Merge pairs until `num_extra` units have no effect, and take these out."""
    num_units = params[0]["w"].shape[1]

    def merge(_, carry):
        params, is_kept = carry
        both = is_kept[:, None] & is_kept[None]
        cost = jnp.where(both, merge_cost(params), jnp.inf)
        i, j = jnp.divmod(jnp.argmin(cost), num_units)
        params, is_kept = merge_pair(params, i, j), is_kept.at[j].set(False)
        params = _trained(posterior, params, optimizer, num_refits, _mask(params, is_kept))
        return params, is_kept

    is_kept = jnp.ones(num_units, bool)
    (first, between, last), is_kept = jax.lax.fori_loop(0, num_extra, merge, (params, is_kept))
    order = jnp.argsort(~is_kept)[: num_units - num_extra]
    first = {"w": first["w"][:, order], "b": first["b"][order]}
    return first, between, {**last, "w": last["w"][order]}


def _mask(params, is_kept) -> PyTree:
    first, between, last = params
    kept = is_kept.astype(first["w"].dtype)
    of_last = {name: jnp.ones_like(leaf) for name, leaf in last.items()}
    of_first = {"w": kept[None] * jnp.ones_like(first["w"]), "b": kept}
    return of_first, between, {**of_last, "w": kept[:, None] * of_last["w"]}


def _polar(params) -> tuple[Array, Array]:
    """Return unit directions (inputs + 1, units) and effects (units, outputs)."""
    first, _, last = params
    incoming = jnp.concatenate([first["w"], first["b"][None]])
    size = jnp.sqrt(jnp.sum(jnp.square(incoming), axis=0))
    return incoming / jnp.where(size > 0, size, 1)[None], size[:, None] * last["w"]
