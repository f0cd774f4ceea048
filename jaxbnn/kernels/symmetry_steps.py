"""One move along each weight symmetry, leaving the prior, and so the posterior, invariant.

A move is a function (rng_key, params) -> (params, acceptance_rate). The likelihood does not change
along a symmetry, so only priors and Jacobians enter.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import lax
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree

from jaxbnn.kernels.metropolis import happens, metropolis, uniforms
from jaxbnn.kernels.symmetry_priors import (
    base_distribution,
    factorises,
    log_ratio_of_leaves,
    log_ratio_per_unit,
    touched_leaves,
)
from jaxbnn.networks.symmetries import (
    Units,
    flip_units,
    jacobian_exponent,
    outgoing_sums,
    permute_units,
    scale_units,
)
from jaxbnn.numerics import standard_normal

Move = Callable[[PRNGKeyArray, PyTree], tuple[PyTree, Float[Array, ""]]]


def permutation_move(priors: list, units: Units, sets: Any) -> Move:
    """Return a random permutation of the units within their exchangeable sets.

    With `sets` None, exchangeability is not known: two units are swapped, accepted with the prior
    ratio.
    """

    def permute(rng_key, params):
        draws = jax.random.uniform(rng_key, (units.size,))
        # Not by the sum of both: it has fewer bits the larger the set's number, and rounds into
        # the next set.
        permutation = jnp.lexsort((draws, jnp.asarray(sets, jnp.int32)))
        if np.any(sets):
            # Now sorted by set and at random within each: lay each set back on its own places.
            places = np.argsort(sets, kind="stable")
            permutation = jnp.zeros_like(permutation).at[places].set(permutation)
        return permute_units(params, units, permutation)[0], _one(params)

    def swap(rng_key, params):
        key_pair, key_accept = jax.random.split(rng_key)
        i, j = jax.random.randint(key_pair, (2,), 0, units.size)
        permutation = jnp.arange(units.size).at[i].set(j).at[j].set(i)
        proposal, _ = permute_units(params, units, permutation)
        return _accept(key_accept, priors, params, proposal, touched_leaves(units))

    return swap if sets is None else permute


def flip_move(priors: list, units: Units) -> Move:
    """Return new signs of the units.

    Where nothing absorbs and the prior factorises, each sign is drawn from its conditional,
    P(flip) = r / (1 + r) with prior ratio r. Where a bias absorbs, unit after unit is flipped
    with probability min(1, r), r at the bias as the units before have left it. Otherwise a random
    set of units is flipped and accepted as a whole.
    """

    def draw_each(rng_key, params):
        log_ratios = flip_log_ratios(priors, params, units)
        probabilities = jnp.where(jnp.isnan(log_ratios), 0, jax.nn.sigmoid(log_ratios))
        flips = happens(uniforms(rng_key, (units.size,), log_ratios.dtype), probabilities)
        return flip_units(params, units, _signs(flips, log_ratios.dtype))[0], jnp.mean(
            probabilities
        )

    def scan_units(rng_key, params):
        leaves, structure = jax.tree.flatten(params)
        log_ratios = flip_log_ratios(priors, params, units)
        growths = [
            absorption.factor * outgoing_sums(leaves, units, absorption.weights)
            for absorption in units.absorptions
        ]
        draws = uniforms(rng_key, (units.size,), log_ratios.dtype)

        def flip_one(biases, unit):
            log_ratio, growth, uniform = unit
            grown = dict(biases)
            for absorption, amount in zip(units.absorptions, growth, strict=True):
                bias = grown[absorption.bias]
                grown[absorption.bias] = bias + amount.astype(bias.dtype)
            log_ratio = log_ratio + log_ratio_of_leaves(priors, biases, grown, list(biases))
            probability = _probability(log_ratio)
            accept = happens(uniform, probability)
            kept = {leaf: jnp.where(accept, grown[leaf], biases[leaf]) for leaf in biases}
            return kept, (accept, probability)

        biases = {absorption.bias: leaves[absorption.bias] for absorption in units.absorptions}
        biases, (flips, probabilities) = lax.scan(
            flip_one, biases, (log_ratios, growths, draws), unroll=min(units.size, 8)
        )
        flipped, _ = flip_units(params, units, _signs(flips, log_ratios.dtype))
        leaves = jax.tree.leaves(flipped)
        for leaf, bias in biases.items():
            # The very numbers that were accepted: another rounding could leave a bounded support.
            leaves[leaf] = bias
        return jax.tree.unflatten(structure, leaves), jnp.mean(probabilities)

    def draw_set(rng_key, params):
        key_signs, key_accept = jax.random.split(rng_key)
        signs = jax.random.rademacher(key_signs, (units.size,), _one(params).dtype)
        proposal, _ = flip_units(params, units, signs)
        return _accept(key_accept, priors, params, proposal, touched_leaves(units))

    if not factorises(priors, units):
        return draw_set
    return scan_units if units.absorptions else draw_each


def scaling_move(priors: list, units: Units, step: ArrayLike | None) -> Move:
    """Return a Metropolis step of the units' scales, log c ~ N(0, step^2).

    Each unit is accepted for itself where the prior factorises, else all together. A step of None
    is 1.7 / sqrt(parameters of a unit): 2.4 standard deviations of log c under a normal prior.
    """

    def scale(rng_key, params):
        key_step, key_accept = jax.random.split(rng_key)
        leaves = jax.tree.leaves(params)
        dtype = leaves[0].dtype
        sizes = [leaves[axis.leaf].size for axis in units.incoming + units.outgoing]
        size = 1.7 / math.sqrt(sum(sizes) / units.size) if step is None else step
        log_factors = jnp.asarray(size, dtype) * standard_normal(key_step, (units.size,), dtype)
        if not factorises(priors, units):
            proposal, log_jacobian = scale_units(params, units, jnp.exp(log_factors))
            return _accept(
                key_accept, priors, params, proposal, touched_leaves(units), log_jacobian
            )
        probabilities = _probability(scaling_log_ratios(priors, params, units, log_factors))
        accept = happens(uniforms(key_accept, (units.size,), dtype), probabilities)
        factors = jnp.exp(jnp.where(accept, log_factors, 0))
        return scale_units(params, units, factors)[0], jnp.mean(probabilities)

    return scale


def shift_move(priors: list, read_out: tuple[int, ...]) -> Move:
    """Draw the class means of the read-out from their prior given the deviations from them.

    `read_out` holds the indices of its weights and bias, whose rows v have one entry per class.
    With normal priors N(m_k, s_k^2) of the classes k, the shift t of a row v is normal with
    precision sum_k 1/s_k^2 and mean sum_k (m_k - v_k)/s_k^2 over that; for equal priors the mean
    of the row is then N(m, s^2/K). With uniform priors t is uniform where all v_k + t are inside.
    """

    def redraw(rng_key, params):
        leaves, structure = jax.tree.flatten(params)
        keys = jax.random.split(rng_key, len(read_out))
        for leaf, key in zip(read_out, keys, strict=True):
            leaves[leaf] = _redraw_means(key, priors[leaf], leaves[leaf])
        return jax.tree.unflatten(structure, leaves), _one(params)

    return redraw


def flip_log_ratios(priors: list, params: PyTree, units: Units) -> Float[Array, " units"]:
    """Return log prior ratios of flipping each unit, but for the biases that absorb."""
    signs = -jnp.ones(units.size, _one(params).dtype)
    flipped = jax.tree.leaves(flip_units(params, units, signs)[0])
    return log_ratio_per_unit(priors, jax.tree.leaves(params), flipped, units)


def scaling_log_ratios(
    priors: list, params: PyTree, units: Units, log_factors: Float[Array, " units"]
) -> Float[Array, " units"]:
    """Return log prior ratios plus log Jacobians of scaling each unit."""
    leaves = jax.tree.leaves(params)
    scaled = jax.tree.leaves(scale_units(params, units, jnp.exp(log_factors))[0])
    log_jacobians = jacobian_exponent(leaves, units) * log_factors
    return log_ratio_per_unit(priors, leaves, scaled, units) + log_jacobians


def _redraw_means(rng_key: PRNGKeyArray, prior: Any, value: Array) -> Array:
    base = base_distribution(prior)

    def laid_out(number):
        return jnp.broadcast_to(jnp.asarray(number, value.dtype), value.shape)

    if type(base) is dist.Normal:
        precision = 1 / jnp.square(laid_out(base.scale))
        total = jnp.sum(precision, axis=-1, keepdims=True)
        mean = jnp.sum((laid_out(base.loc) - value) * precision, axis=-1, keepdims=True) / total
        noise = standard_normal(rng_key, total.shape, value.dtype)
        return value + (mean + noise / jnp.sqrt(total))
    low, high = laid_out(base.low), laid_out(base.high)
    room_below = jnp.max(low - value, axis=-1, keepdims=True)
    room_above = jnp.min(high - value, axis=-1, keepdims=True)
    uniform = uniforms(rng_key, room_below.shape, value.dtype).astype(value.dtype)
    # A row outside the box has no room and stays; rounding must not carry another one out.
    amount = jnp.where(room_below < room_above, room_below + uniform * (room_above - room_below), 0)
    return jnp.where(room_below < room_above, jnp.clip(value + amount, low, high), value)


def _accept(rng_key, priors, params, proposal, touched, log_jacobian=None):
    old, new = jax.tree.leaves(params), jax.tree.leaves(proposal)
    log_ratio = log_ratio_of_leaves(priors, old, new, touched)
    if log_jacobian is not None:
        log_ratio = log_ratio + log_jacobian
    params, info = metropolis(rng_key, log_ratio, params, proposal)
    return params, info.acceptance_rate


def _probability(log_ratio: Array) -> Array:
    return jnp.where(jnp.isnan(log_ratio), 0, jnp.exp(jnp.minimum(log_ratio, 0)))


def _signs(flips: Array, dtype: Any) -> Array:
    return jnp.where(flips, -1, 1).astype(dtype)


def _one(params: PyTree) -> Array:
    return jnp.ones((), jax.tree.leaves(params)[0].dtype)
