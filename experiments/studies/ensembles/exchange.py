"""Exchange of hidden units between chains: a Metropolis move on their joint law."""

import functools
import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree


def exchange_units(
    key: PRNGKeyArray,
    positions: PyTree,
    log_likelihood: Callable[[PyTree], Float[Array, ""]],
    num_sweeps: int,
) -> tuple[PyTree, Float[Array, "sweep layer"]]:
    """Let chains in random pairs exchange one random hidden unit of each layer in turn.

    A unit is what comes into it and what goes out of it. Chains are independent draws of one
    posterior, whose prior must be one and the same for all units of a layer: it cancels, and

        accept with probability min(1, L(w'_1) L(w'_2) / (L(w_1) L(w_2))).

    Parameters
    ----------
    key
        The key of all sweeps.
    positions
        Of an `mlp`, leaves (chain, ...).
    log_likelihood
        Of one chain's position.
    num_sweeps
        Times that every layer has its turn.

    Returns
    -------
    The positions, and the mean acceptance probability over pairs.
    """
    num_chains = len(jax.tree.leaves(positions)[0])
    num_pairs = num_chains // 2
    # Activations lie between the layers, and have no parameters.
    dense = [number for number, layer in enumerate(positions) if "w" in layer]
    likelihoods = jax.vmap(log_likelihood)

    def turn(key, positions, layer, following):
        key_pairs, key_units, key_accept = jax.random.split(key, 3)
        chosen = jax.random.permutation(key_pairs, num_chains)[: 2 * num_pairs]
        num_units = positions[layer]["w"].shape[-1]
        units = jax.random.randint(key_units, (2 * num_pairs,), 0, num_units)
        before = jax.tree.map(lambda leaf: leaf[chosen], positions)
        partner = jnp.roll(jnp.arange(2 * num_pairs), num_pairs)
        swap = functools.partial(_with_unit_of, layer=layer, following=following)
        theirs = jax.tree.map(lambda leaf: leaf[partner], before)
        after = jax.vmap(swap)(before, theirs, units, units[partner])
        gain = likelihoods(after) - likelihoods(before)
        log_ratio = gain[:num_pairs] + gain[num_pairs:]
        uniform = jax.random.uniform(key_accept, (num_pairs,))
        is_accepted = jnp.tile(jnp.log(uniform) < log_ratio, 2)

        def choose(leaf, new, old):
            mask = is_accepted.reshape((-1,) + (1,) * (leaf.ndim - 1))
            return leaf.at[chosen].set(jnp.where(mask, new, old))

        positions = jax.tree.map(choose, positions, after, before)
        return positions, jnp.mean(jnp.exp(jnp.minimum(log_ratio, 0.0)))

    def sweep(positions, number):
        rates = []
        for layer, following in itertools.pairwise(dense):
            key_turn = jax.random.fold_in(jax.random.fold_in(key, number), layer)
            positions, rate = turn(key_turn, positions, layer, following)
            rates.append(rate)
        return positions, jnp.stack(rates)

    return jax.jit(lambda p: jax.lax.scan(sweep, p, jnp.arange(num_sweeps, dtype=jnp.uint32)))(
        positions
    )


def _with_unit_of(
    ours: PyTree, theirs: PyTree, unit: Array, their_unit: Array, layer: int, following: int
) -> PyTree:
    """Return our position with their unit in our unit's place."""
    into, out_of = dict(ours[layer]), dict(ours[following])
    into["w"] = into["w"].at[:, unit].set(theirs[layer]["w"][:, their_unit])
    into["b"] = into["b"].at[unit].set(theirs[layer]["b"][their_unit])
    out_of["w"] = out_of["w"].at[unit].set(theirs[following]["w"][their_unit])
    changed = {layer: into, following: out_of}
    return tuple(changed.get(number, own) for number, own in enumerate(ours))
