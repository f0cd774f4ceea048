"""Turn hidden units, and draw all incoming weights and latents anew with them.

Two traps hold a network that was cooled too fast, minima that look like the posterior up to
second order. As relu(z) = (z + |z|) / 2, units are seen by |z|, which is even, and by z, which is
linear: a unit of the wrong sign has the right |z|, and what it does wrong is linear, for which the
others bend. And as the sum over units of one sign of v_k^2 w_k w_k^T stays what it is where two of
their |v_k| w_k are rotated into each other, a pair may stand at the sum and the difference of what
it should be. Leaving means to turn one or two units, and all others with them, whose latents are
also bent.

This move turns the incoming weights U of one or two units, U -> T(U), where T flips signs or, in
the plane of |v_i| u_i and |v_j| u_j, rotates or reflects by multiples of 45 degrees; v, the
outgoing weights, stays. Then it draws, with s the slopes of the activation at x T(U),

    (U', c') ~ the Gaussian posterior of y_i = sum_k v_k s_ik x_i u_k + c + noise,
    Z' ~ the Gaussian posterior of y_i = sum_k v_k s'_ik z_ik + c' + noise, s' at x U',

c the last bias, the noise of all latents in both, and accepts by Metropolis-Hastings, X2 integrated
out and drawn after. The way back has the inverse of T, so that

    log r = log p(U', c', Z', y) - log q(U', c' | T(U)) - log q(Z' | U', c')
            - log p(U, c, Z, y) + log q(U, c | T^-1(U')) + log q(Z | U, c),

to which the terms of single data are small: Z' differs from its exact law only where a unit is
within its noise of zero.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

from jaxbnn.gibbs.chain import GibbsPosition
from jaxbnn.gibbs.hidden_units import scalings
from jaxbnn.gibbs.model import IntermediateNoise
from jaxbnn.gibbs.pieces import PiecewiseLinear
from jaxbnn.gibbs.starts import check_position
from jaxbnn.gibbs.validation import check_data, check_model, inputs_last, outputs_last
from jaxbnn.kernels.refresh import auxiliary_fields
from jaxbnn.networks import Dense
from jaxbnn.numerics import standard_normal
from jaxbnn.numerics.gaussians import gaussian_from_noise, gaussian_log_density
from jaxbnn.numerics.products import product


@auxiliary_fields()
class TurnsState(NamedTuple):
    """State of `turn_units`: there is nothing to cache.

    Attributes
    ----------
    position
        Weights and latents.
    """

    position: GibbsPosition


class TurnsInfo(NamedTuple):
    """What happened in one step, in which one or two units were turned.

    Attributes
    ----------
    acceptance_rate
        min(1, exp(log_ratio)), 0 where it is NaN. It is near zero where no unit is trapped.
    is_accepted
        Whether weights and latents are new.
    is_divergent
        Whether the log ratio is no number.
    """

    acceptance_rate: Float[Array, ""]
    is_accepted: Bool[Array, ""]
    is_divergent: Bool[Array, ""]


class Collapsed(NamedTuple):
    """A position without X2: what the move sees.

    Attributes
    ----------
    u
        (inputs + 1, units): incoming weights, and biases last, where there are any.
    bias
        The last bias, c; 0 in a network without one.
    z
        (units, n): pre-activations.
    """

    u: Float[Array, "inputs units"]
    bias: Float[Array, ""]
    z: Float[Array, "units n"]


def turn_units(
    model: IntermediateNoise,
    x: Shaped[Array | np.ndarray, "n ..."],
    y: Shaped[Array | np.ndarray, "n ..."],
) -> SamplingAlgorithm:
    """Return a kernel that turns one or two hidden units and draws the others anew with them.

    To be put after `gibbs_sampler` in a `cycle`, or given to `interwoven_gibbs` as one of
    `more_moves`. A step costs two regressions with all incoming weights as coefficients, n p^2
    products each, p = (inputs + 1) units, which is many sweeps: `cycle(repeat(sweeps, 50), turns)`.

    Parameters
    ----------
    model
        Of one hidden layer, one output, an activation with slopes that meet at zero
        (relu, leaky_relu, abs, identity), in regression. Its variances and precisions may be
        traced.
    x, y
        Data, rows first; may be traced.

    Returns
    -------
    The pair, with `TurnsState` and `TurnsInfo`. Positions are `GibbsPosition`.

    Raises
    ------
    ValueError
        If the data do not fit the model, or the model is of another kind.
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
    >>> kernel = turn_units(model, x, y)
    >>> state, info = jax.jit(kernel.step)(jax.random.key(2), kernel.init(position))
    >>> bool(0 <= info.acceptance_rate <= 1)
    True
    """
    check_model(model)
    check_data(model, x, y)
    _check_kind(model)
    inputs = inputs_last(model.network, x)
    move = _Turn(model, inputs, outputs_last(model.network, y, inputs.dtype)[0])

    def init(position: GibbsPosition, rng_key: PRNGKeyArray | None = None) -> TurnsState:
        check_position(model, position, inputs)
        return TurnsState(position)

    def step(rng_key: PRNGKeyArray, state: TurnsState):
        keys = jax.random.split(rng_key, 6)
        params, (z,) = state.position.params, state.position.pre
        first, _, last = params
        old, v = Collapsed(*move.weights(first, last), z), last["w"][:, 0]
        turn = random_turn(keys[0], keys[1], v)
        new, log_ratio = move.propose(keys[2], keys[3], old, v, turn)
        rate = jnp.exp(jnp.minimum(log_ratio, 0))
        rate = jnp.where(jnp.isnan(rate), 0, rate)
        is_accepted = jax.random.uniform(keys[4], dtype=rate.dtype) < rate
        u, bias, z = jax.tree.map(lambda a, b: jnp.where(is_accepted, a, b), new, old)
        # X2 was integrated out: it is drawn also where the move is rejected.
        post = move.draw_outputs(keys[5], z, v, bias)
        params = (move.entry(u), (), last | ({"b": bias[None]} if "b" in last else {}))
        info = TurnsInfo(rate, is_accepted, jnp.isnan(log_ratio))
        return TurnsState(GibbsPosition(params, (z,), (post,))), info

    return SamplingAlgorithm(init, step)


def random_turn(
    key_pair: PRNGKeyArray, key_turn: PRNGKeyArray, v: Float[Array, " units"]
) -> Float[Array, "units units"]:
    """Return T of U -> U T, a turn of one or two units: its inverse is as probable, its |det| 1.

    Parameters
    ----------
    key_pair, key_turn
        Keys.
    v
        (units,): outgoing weights, which a turn leaves; only those of one sign are mixed.
    """
    num_units = v.shape[0]
    key_first, key_second = jax.random.split(key_pair)
    i = jax.random.randint(key_first, (), 0, num_units)
    j = (i + jax.random.randint(key_second, (), 1, max(num_units, 2))) % num_units
    key_flips, key_angle, key_mirror, key_kind = jax.random.split(key_turn, 4)
    flips = jnp.array([[-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]], v.dtype)
    signs = flips[jax.random.randint(key_flips, (), 0, 3)]
    angle = jnp.pi / 4 * jax.random.randint(key_angle, (), 0, 8).astype(v.dtype)
    mirror = 1 - 2 * jax.random.bernoulli(key_mirror).astype(v.dtype)
    cos, sin = jnp.cos(angle).astype(v.dtype), jnp.sin(angle).astype(v.dtype)
    rotation = jnp.array([[cos, -sin * mirror], [sin, cos * mirror]])
    is_mixed = (v[i] * v[j] > 0) & jax.random.bernoulli(key_kind)
    ratio = jnp.abs(v[i] / v[j])
    scale = jnp.array([[1.0, ratio], [1 / ratio, 1.0]], v.dtype)
    pair = jnp.where(is_mixed, rotation * scale, jnp.diag(signs))
    both = jnp.array([i, j])
    whole = jnp.eye(num_units, dtype=v.dtype).at[both[:, None], both[None]].set(pair)
    # A network of one unit has no pair: its sign alone is flipped.
    return -jnp.eye(1, dtype=v.dtype) if num_units == 1 else whole


class _Turn:
    """The densities and draws of the move, at given data."""

    def __init__(self, model: IntermediateNoise, x: Float[Array, "d n"], y: Float[Array, " n"]):
        first, activation, last = (stage.layer for stage in model.stages)
        assert isinstance(first, Dense)
        assert isinstance(last, Dense)
        assert isinstance(activation, PiecewiseLinear)
        self.activation, self.has_biases, self.has_last_bias = activation, first.bias, last.bias
        self.x = jnp.concatenate([x, jnp.ones((int(self.has_biases), x.shape[-1]), x.dtype)])
        self.y, dtype = y.astype(x.dtype), x.dtype
        self.variances = [model.variance(j, dtype) for j in range(3)]
        weight, bias = model.precisions(0, dtype)
        self.precision = jnp.full(len(self.x), weight)
        if self.has_biases:
            self.precision = self.precision.at[-1].set(bias)
        self.bias_precision = model.precisions(1, dtype)[1]

    def propose(
        self, key_weights, key_latents, old: Collapsed, v, turn
    ) -> tuple[Collapsed, Float[Array, ""]]:
        """Return another position and the log ratio."""
        root, mean = self.regression(product(old.u, turn), v)
        noise = standard_normal(key_weights, mean.shape, mean.dtype)
        drawn = mean + gaussian_from_noise(noise, root, jnp.zeros_like(noise))
        u, bias = self.unravelled(drawn, v)
        new = Collapsed(u, bias, self.draw_latents(key_latents, u, bias, v))
        back_root, back_mean = self.regression(product(u, jnp.linalg.inv(turn)), v)
        forward = gaussian_log_density(drawn, mean, root)
        back = gaussian_log_density(self.ravelled(old.u, old.bias), back_mean, back_root)
        terms = self.log_terms(new, v) - self.log_terms(old, v)
        prior = self.log_prior(new) - self.log_prior(old)
        return new, jnp.sum(terms) + prior + back - forward

    def regression(self, u, v) -> tuple[Array, Array]:
        """Return the Cholesky root of the precision, and the mean, of (U, c) given the slopes."""
        h = v[:, None] * self.slopes(u)
        variance = self.output_variance(v) + self.variances[0] * jnp.sum(jnp.square(h), axis=0)
        features = (h[:, None, :] * self.x[None]).reshape(-1, self.x.shape[-1])
        prior = jnp.tile(self.precision, v.shape[0])
        if self.has_last_bias:
            features = jnp.concatenate([features, jnp.ones_like(features[:1])])
            prior = jnp.concatenate([prior, self.bias_precision[None]])
        weighted = features / jnp.sqrt(variance)[None]
        root = jnp.linalg.cholesky(product(weighted, weighted.T) + jnp.diag(prior))
        target = product(weighted, self.y / jnp.sqrt(variance))
        return root, gaussian_from_noise(jnp.zeros_like(target), root, target)

    def draw_latents(self, key, u, bias, v) -> Float[Array, "units n"]:
        """Draw Z given weights and y, as if slopes were those at its mean."""
        mean = product(u.T, self.x)
        h = v[:, None] * self.slopes_at(mean)
        key_z, key_y = jax.random.split(key)
        first, rest = self.variances[0], self.output_variance(v)
        z = mean + jnp.sqrt(first) * standard_normal(key_z, mean.shape, mean.dtype)
        noise = jnp.sqrt(rest) * standard_normal(key_y, self.y.shape, mean.dtype)
        gap = self.y - bias - jnp.sum(h * z, axis=0) - noise
        return z + first * h * (gap / (rest + first * jnp.sum(jnp.square(h), axis=0)))[None]

    def log_terms(self, at: Collapsed, v) -> Float[Array, " n"]:
        """Return log p(Z, y | U, c) - log q(Z | U, c) of each datum, without constants.

        p and q share the density of Z given U, and the rest of q is that of Z given a linear y.
        """
        mean = product(at.u.T, self.x)
        h = v[:, None] * self.slopes_at(mean)
        rest = self.output_variance(v)
        whole = rest + self.variances[0] * jnp.sum(jnp.square(h), axis=0)
        of_mean = jnp.square(self.y - at.bias - jnp.sum(h * mean, axis=0)) / whole
        linear = jnp.square(self.y - at.bias - jnp.sum(h * at.z, axis=0))
        exact = jnp.square(self.y - at.bias - product(v, self.activation(at.z)))
        return (linear - exact) / (2 * rest) - of_mean / 2 - jnp.log(whole) / 2

    def log_prior(self, at: Collapsed) -> Float[Array, ""]:
        """Return the log density of the incoming weights and the last bias, up to a constant."""
        squares = jnp.sum(self.precision * jnp.sum(jnp.square(at.u), axis=1))
        return -(squares + self.bias_precision * jnp.square(at.bias)) / 2

    def draw_outputs(self, key, z, v, bias) -> Float[Array, "units n"]:
        """Draw X2 given Z and y: exact."""
        key_x, key_y = jax.random.split(key)
        _, post, last = self.variances
        drawn = self.activation(z) + jnp.sqrt(post) * standard_normal(key_x, z.shape, z.dtype)
        noise = jnp.sqrt(last) * standard_normal(key_y, self.y.shape, z.dtype)
        gap = self.y - bias - product(v, drawn) - noise
        return drawn + post * v[:, None] * (gap / self.output_variance(v))[None]

    def output_variance(self, v) -> Float[Array, ""]:
        """Return the variance of y given Z."""
        return self.variances[2] + self.variances[1] * jnp.sum(jnp.square(v))

    def slopes(self, u) -> Float[Array, "units n"]:
        """Return the activation's slopes at the means that these weights make."""
        return self.slopes_at(product(u.T, self.x))

    def slopes_at(self, mean) -> Float[Array, "units n"]:
        """Return the activation's slopes there: those of its side of zero."""
        one = jnp.ones((), mean.dtype)
        return jnp.where(mean > 0, self.activation(one), -self.activation(-one))

    def weights(self, first, last) -> tuple[Array, Array]:
        """Return U and c of a network's parameters."""
        u = jnp.concatenate([first["w"], first["b"][None]]) if self.has_biases else first["w"]
        return u, last["b"][0] if self.has_last_bias else jnp.zeros((), u.dtype)

    def entry(self, u) -> dict[str, Array]:
        """Return the first layer's parameters: the inverse of `weights`."""
        return {"w": u[:-1], "b": u[-1]} if self.has_biases else {"w": u}

    def ravelled(self, u, bias) -> Float[Array, " coefficients"]:
        """Return weights as the regression has them: unit after unit, the last bias last."""
        flat = u.T.reshape(-1)
        return jnp.concatenate([flat, bias[None]]) if self.has_last_bias else flat

    def unravelled(self, coefficients, v) -> tuple[Array, Array]:
        """Return U and c: the inverse of `ravelled`."""
        size = len(self.x) * v.shape[0]
        bias = coefficients[-1] if self.has_last_bias else jnp.zeros((), v.dtype)
        return coefficients[:size].reshape(v.shape[0], -1).T, bias


def _check_kind(model: IntermediateNoise) -> None:
    layers = [stage.layer for stage in model.stages]
    is_kind = (
        model.output == "regression"
        and len(layers) == len(model.network.layers) == 3
        and len(model.network.input_shape) == 1
        and isinstance(layers[0], Dense)
        and isinstance(layers[1], PiecewiseLinear)
        and isinstance(layers[2], Dense)
        and layers[2].features == 1
        and any(scaling.has_outgoing for scaling in scalings(model)[0])
    )
    if not is_kind:
        raise ValueError(
            "turn_units needs regression with one output, by one hidden layer with relu, "
            "leaky_relu, abs or identity; leave it out for this model."
        )
