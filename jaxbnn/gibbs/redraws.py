"""Redraw one hidden unit of the intermediate-noise model, with its latents, from the prior.

Trapped chains have one unit in the place of two, and units that do nothing: such a unit has
outgoing weights near zero, and incoming ones that its own latents hold within sqrt(Delta / n) of
where they are, so that sweeps never turn it to where it is needed. This move forgets it. With V_k
its outgoing weights and m the density of what they feed, V_k integrated out,

    m(u) = int p(v_next | u V_k + the other units) p(V_k) dV_k,

J candidates u_1, ..., u_J come from the prior of the incoming weights and the noise of the unit's
own stages; one of them, or the unit as it is, is chosen with probability proportional to m, and
V_k drawn given it. Candidates follow the law that the unit has given all the rest but v_next, so
that the choice leaves the posterior invariant (iterated sampling importance resampling: Andrieu,
Lee, Vihola (2018), Bernoulli 24, 842-872).

V_k of the unit as it is, is drawn as a difference from what it was, as in `jaxbnn.gibbs.weights`:
float32 then rounds what the unit leaves unexplained, and not all that it explains.
"""

import dataclasses
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree, Shaped

from jaxbnn.gibbs.chain import GibbsPosition, chain_values
from jaxbnn.gibbs.factors import whiten
from jaxbnn.gibbs.hidden_units import Group, by_unit, hidden_groups
from jaxbnn.gibbs.linear_maps import affine, average, linear
from jaxbnn.gibbs.model import IntermediateNoise
from jaxbnn.gibbs.stages import split
from jaxbnn.gibbs.starts import check_position, satisfying
from jaxbnn.gibbs.validation import check_data, check_model, inputs_last
from jaxbnn.gibbs.weights import regression_sums
from jaxbnn.kernels.refresh import auxiliary_fields
from jaxbnn.networks import AvgPool, Conv, Dense
from jaxbnn.numerics import standard_normal
from jaxbnn.numerics.checks import check_count
from jaxbnn.numerics.products import product


@auxiliary_fields()
class RedrawsState(NamedTuple):
    """State of `redraw_noisy_units`: there is nothing to cache.

    Attributes
    ----------
    position
        Weights and latents.
    """

    position: GibbsPosition


class RedrawsInfo(NamedTuple):
    """What happened in one step, in which one unit of every hidden layer had its turn.

    Attributes
    ----------
    acceptance_rate
        Mean over the layers of the probability of another unit. It is near zero where the unit is
        in use.
    is_accepted
        Whether any unit is another one now.
    is_divergent
        Whether the density of a unit as it was is no number; that unit is left as it is.
    """

    acceptance_rate: Float[Array, ""]
    is_accepted: Bool[Array, ""]
    is_divergent: Bool[Array, ""]


def redraw_noisy_units(
    model: IntermediateNoise,
    x: Shaped[Array | np.ndarray, "n ..."],
    y: Shaped[Array | np.ndarray, "n ..."],
    num_candidates: int = 16,
) -> SamplingAlgorithm:
    """Return a kernel that offers one unit of each hidden layer candidates from its prior.

    Which unit is drawn anew in each step. To be put after `gibbs_sampler` in a `cycle`, or given to
    `interwoven_gibbs` as one of `more_moves`.

    Parameters
    ----------
    model
        The model; its variances and precisions may be traced.
    x, y
        Data, rows first; may be traced.
    num_candidates
        J. A step costs a pass over the data of J units of each layer.

    Returns
    -------
    The pair, with `RedrawsState` and `RedrawsInfo`. Positions are `GibbsPosition`.

    Raises
    ------
    ValueError
        If the data do not fit the model, it has no hidden units, or there is no candidate.
    TypeError, ValueError
        Of `init`: a position that is not of this model and these data.

    Notes
    -----
    The model is that of Piccioli et al., (7); the move is not in the paper.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> model, x = IntermediateNoise(mlp((2, 3, 1)), 0.01), jnp.ones((5, 2))
    >>> position, y = model.simulate(jax.random.key(0), model.sample_prior(jax.random.key(1)), x)
    >>> kernel = redraw_noisy_units(model, x, y)
    >>> state, info = jax.jit(kernel.step)(jax.random.key(2), kernel.init(position))
    >>> bool(0 <= info.acceptance_rate <= 1)
    True
    """
    check_model(model)
    check_data(model, x, y)
    check_count("num_candidates", num_candidates)
    groups = hidden_groups(model)
    if not groups:
        raise ValueError("the network has no hidden units; leave redraw_noisy_units out.")
    inputs = inputs_last(model.network, x)

    def init(position: GibbsPosition, rng_key: PRNGKeyArray | None = None) -> RedrawsState:
        check_position(model, position, inputs)
        return RedrawsState(satisfying(model, position, y))

    def step(rng_key: PRNGKeyArray, state: RedrawsState):
        params = list(state.position.params)
        values = chain_values(model, state.position, y, inputs.dtype)
        rates, moved, divergent = [], [], []
        for number, group in enumerate(groups):
            redraw = _Redraw(model, group, inputs, params, values)
            rate, is_moved, is_divergent = redraw.step(
                jax.random.fold_in(rng_key, number), num_candidates
            )
            rates.append(rate)
            moved.append(is_moved)
            divergent.append(is_divergent)
        latent = model.latent_stages
        position = GibbsPosition(tuple(params), *split(latent, values[: len(latent)]))
        any_of = lambda flags: jnp.any(jnp.stack(flags))  # noqa: E731
        info = RedrawsInfo(jnp.mean(jnp.stack(rates)), any_of(moved), any_of(divergent))
        return RedrawsState(position), info

    return SamplingAlgorithm(init, step)


class _Redraw:
    """A redraw of one unit under way; changes the lists of parameters and values given to it."""

    def __init__(
        self,
        model: IntermediateNoise,
        group: Group,
        x: Float[Array, "..."],
        params: list,
        values: list,
    ):
        self.model, self.group, self.params, self.values = model, group, params, values
        self.dtype = x.dtype
        self.before = [x, *values]  # what each stage takes, before any change
        self.first, self.last = model.stages[group.first], model.stages[group.following]

    def step(self, rng_key, num_candidates):
        """Choose among candidates; return the probability of another unit, and what happened."""
        key_unit, key_weights, key_noise, key_choice, key_out = jax.random.split(rng_key, 5)
        unit = jax.random.randint(key_unit, (), 0, self.group.size)
        entry, own = self.candidates(key_weights, key_noise, num_candidates)
        # The unit as it is stands last.
        current = by_unit(self.values[self.group.own[-1]], self.group.size)[:, unit]
        base, explained, residual = self.part_of(unit, current)
        target, nothing = residual + explained, jnp.zeros_like(base)
        laws = jax.vmap(lambda u: self.outgoing_law(u, target, nothing))(
            jnp.moveaxis(own[-1], 1, 0)
        )
        of_current = self.outgoing_law(current, residual, base)
        log_masses, roots, means = jax.tree.map(
            lambda offered, one: jnp.concatenate([offered, one[None]]), laws, of_current
        )
        d = self.model.variance(self.group.following, self.dtype)
        # Both are beside the density of what no weights at all leave.
        gained = jnp.sum(explained * (target + residual)) / (2 * d)
        log_masses = log_masses.at[-1].add(gained)
        is_sound = jnp.isfinite(log_masses)
        is_divergent = ~is_sound[-1]
        log_weights = jnp.where(is_sound, log_masses, -jnp.inf)
        # A unit whose own density is no number stays: nothing can be compared with it.
        log_weights = log_weights.at[-1].set(jnp.where(is_divergent, 0, log_weights[-1]))
        log_weights = log_weights.at[:-1].set(jnp.where(is_divergent, -jnp.inf, log_weights[:-1]))
        chosen = jax.random.categorical(key_choice, log_weights)
        is_moved = chosen < num_candidates
        index = jnp.minimum(chosen, num_candidates - 1)
        noise = standard_normal(key_out, means.shape[1:], self.dtype)
        outgoing = means[chosen] + product(roots[chosen].T, noise)
        self.put(unit, entry, own, index, is_moved, jnp.where(is_divergent, jnp.nan, outgoing))
        rate = 1 - jax.nn.softmax(log_weights)[-1]
        return rate, is_moved, is_divergent

    def candidates(self, key_weights, key_noise, number) -> tuple[dict, list[Array]]:
        """Draw incoming weights (..., number), and values (positions, number, n) of each stage."""
        layer = self.first.layer
        assert isinstance(layer, Dense | Conv)
        weight, bias = self.model.precisions(self.first.affine_index, self.dtype)
        old, keys = self.params[self.first.index], jax.random.split(key_weights)
        shape = (*old["w"].shape[:-1], number)
        entry = {"w": standard_normal(keys[0], shape, self.dtype) / jnp.sqrt(weight)}
        if "b" in old:
            entry["b"] = standard_normal(keys[1], (number,), self.dtype) / jnp.sqrt(bias)
        wide = dataclasses.replace(layer, features=number)
        value = affine(wide, entry, self.first.view(self.before[self.group.first]))
        own = []
        for j in self.group.own:
            if j > self.group.first:
                stage = self.model.stages[j].layer
                assert not isinstance(stage, Dense | Conv)
                value = average(stage, value) if isinstance(stage, AvgPool) else stage(value)
            key = jax.random.fold_in(key_noise, j)
            noise = standard_normal(key, value.shape, self.dtype)
            value = value + jnp.sqrt(self.model.variance(j, self.dtype)) * noise
            own.append(by_unit(value, number))
        return entry, own

    def one(self, u: Float[Array, "positions n"]) -> Float[Array, "..."]:
        """Return one unit's values as the next layer takes a single channel."""
        *shape, last = self.last.input_shape
        return u.reshape(*shape, last // self.group.size, u.shape[-1])

    def part_of(self, unit, u) -> tuple[Array, Array, Array]:
        """Return a unit's outgoing weights, what they explain of what is fed, and what is left."""
        f, params = self.group.following, self.params
        base = by_unit(params[self.last.index]["w"], self.group.size)[:, unit]
        layer = self.last.layer
        assert isinstance(layer, Dense | Conv)
        w = base.reshape(*layer.window, 1, layer.features) if isinstance(layer, Conv) else base
        mean = self.last.mean(tuple(params), self.before[f])
        return base, linear(layer, w, self.one(u)), self.values[f] - mean

    def outgoing_law(self, u, residual, base) -> tuple[Array, Array, Array]:
        """Return log m(u), and root and mean of V_k given u: its covariance is root^T root.

        `residual` is what is left to explain by V_k beyond `base`, any values: those near the
        result keep the most digits. The density m is given beside that of `residual` for V_k
        fixed at `base`, as a ratio.
        """
        layer = self.last.layer
        assert isinstance(layer, Dense | Conv)
        d = self.model.variance(self.group.following, self.dtype)
        weight, _ = self.model.precisions(self.last.affine_index, self.dtype)
        size = base.shape[0]
        ridge = jnp.full(size, d * weight, self.dtype)
        sums = partial(regression_sums, layer, self.one(u), residual, base, ridge)
        whitened = whiten(sums)
        log_det = size / 2 * jnp.log(d * weight) + jnp.sum(jnp.log(jnp.diagonal(whitened.root)))
        squares = jnp.sum(jnp.square(whitened.linear)) - d * weight * jnp.sum(jnp.square(base))
        log_mass = base.shape[1] * log_det + squares / (2 * d)
        mean = base + product(whitened.root.T, whitened.linear)
        return log_mass, jnp.sqrt(d) * whitened.root, mean

    def put(self, unit, entry: PyTree, own, index, is_moved, outgoing) -> None:
        """Write the chosen unit; where the outgoing weights are no numbers, nothing."""
        is_sound = jnp.all(jnp.isfinite(outgoing))
        is_moved = is_moved & is_sound
        i, f, size = self.first.index, self.last.index, self.group.size
        self.params[i] = {
            name: leaf.at[..., unit].set(
                jnp.where(is_moved, entry[name][..., index], leaf[..., unit])
            )
            for name, leaf in self.params[i].items()
        }
        for j, new in zip(self.group.own, own, strict=True):
            old = by_unit(self.values[j], size)
            now = jnp.where(is_moved, new[:, index], old[:, unit])
            self.values[j] = old.at[:, unit].set(now).reshape(self.values[j].shape)
        old = by_unit(self.params[f]["w"], size)
        now = jnp.where(is_sound, outgoing, old[:, unit])
        w = old.at[:, unit].set(now).reshape(self.params[f]["w"].shape)
        self.params[f] = self.params[f] | {"w": w}
