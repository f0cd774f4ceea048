"""A position and a momentum in many dimensions, held by a few of their coordinates.

Where a target is N(0, I) in m dimensions and the acceptance of underdamped Langevin sees them
through inner products alone, the law of the chain does not change when the axes are turned. A
position z and a momentum q are therefore held by coordinates on axes of our choice: those along
some fixed directions, as many as are wanted, and, in the m' dimensions that remain, two, of z and
q on axes turned along with them so that all others are zero (one axis where m' = 1, none where
m' = 0).

A refreshment of the momentum adds sqrt(b) xi. Of the noise xi, the coordinates on the axes held
are standard normal; all the rest of it points along one further axis, with length chi of m' - 2
degrees of freedom (Bartlett's decomposition); and a rotation puts the three axes of what remains
back to two. The leapfrog step of N(0, I) is linear and needs nothing more.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree

from jaxbnn.kernels.trees import normal_like
from jaxbnn.kernels.underdamped_langevin import refresh_momentum


class Pair(NamedTuple):
    """Coordinates of a position and a momentum; min(m', 2) of each in the rest.

    Attributes
    ----------
    along, momentum_along
        On the fixed axes, PyTrees.
    rest, momentum_rest
        On the turning axes.
    """

    along: PyTree
    momentum_along: PyTree
    rest: Float[Array, " rest"]
    momentum_rest: Float[Array, " rest"]


def draw_pair(key: PRNGKeyArray, along_like: PyTree, num_rest: int, dtype) -> Pair:
    """Draw a position and a momentum from N(0, I).

    Parameters
    ----------
    key
        Of the draw.
    along_like
        Shapes and dtypes of the coordinates on fixed axes.
    num_rest
        m', the number of dimensions beyond them.
    dtype
        Of the coordinates in the rest.
    """
    keys = jax.random.split(key, 4)
    along, momentum_along = normal_like(keys[0], along_like), normal_like(keys[1], along_like)
    rest = jnp.zeros(min(num_rest, 2), dtype)
    if num_rest <= 2:
        rest, momentum_rest = normal_like(keys[2], rest), normal_like(keys[3], rest)
        return Pair(along, momentum_along, rest, momentum_rest)
    # Turn the axes: the first along the position, whose length is chi of m' degrees of freedom;
    # the second along what the momentum has beyond the first. N(0, I) looks alike on all axes, so
    # the momentum is normal along the first, and chi of m' - 1 beyond it: hypot of a normal
    # number and a chi of m' - 2.
    rest = rest.at[0].set(_chi(keys[2], num_rest, dtype))
    noise = _noise(keys[3], num_rest, dtype)
    momentum_rest = jnp.stack([noise[0], jnp.hypot(noise[1], noise[2])])
    return Pair(along, momentum_along, rest, momentum_rest)


def refresh_pair(key: PRNGKeyArray, pair: Pair, refreshment: ArrayLike, num_rest: int) -> Pair:
    """Replace q by sqrt(1 - b) q + sqrt(b) xi, xi ~ N(0, I) in all m dimensions."""
    key_along, key_rest = jax.random.split(key)
    momentum_along = refresh_momentum(
        pair.momentum_along, normal_like(key_along, pair.along), refreshment
    )
    if num_rest <= 2:
        momentum_rest = refresh_momentum(
            pair.momentum_rest, normal_like(key_rest, pair.rest), refreshment
        )
        return pair._replace(momentum_along=momentum_along, momentum_rest=momentum_rest)
    # The noise is a third vector in the rest, with a part beyond the plane of z and q.
    noise = _noise(key_rest, num_rest, pair.rest.dtype)
    momentum_rest = refresh_momentum(jnp.pad(pair.momentum_rest, (0, 1)), noise, refreshment)
    return Pair(pair.along, momentum_along, *_turn(pair.rest, momentum_rest))


def leapfrog_pair(pair: Pair, step_size: ArrayLike) -> tuple[Pair, Float[Array, ""]]:
    """Take the leapfrog step of N(0, I), and return what the log ratio gains from it.

    The energy (|z|^2 + |q|^2) / 2 grows by eps^2 / 8 (|z'|^2 - |z|^2), computed from the step
    z' - z itself: in float32 the difference of the two norms would have lost its digits.
    """

    def move(z, q):
        eps = jnp.asarray(step_size, z.dtype)
        step = eps * (q - eps / 2 * z)
        new = z + step
        momentum = q - eps / 2 * (z + new)
        return new, momentum, -jnp.square(eps) / 8 * jnp.sum(step * (z + new))

    leaves, structure = jax.tree.flatten((pair.along, pair.rest))
    momenta = jax.tree.leaves((pair.momentum_along, pair.momentum_rest))
    moved = [move(z, q) for z, q in zip(leaves, momenta, strict=True)]
    (along, rest), (momentum_along, momentum_rest) = (
        jax.tree.unflatten(structure, parts) for parts in list(zip(*moved, strict=True))[:2]
    )
    gain = sum(gains for *_, gains in moved)
    return Pair(along, momentum_along, rest, momentum_rest), gain


def turn_back(pair: Pair) -> Pair:
    """Return the pair with its momentum reversed."""
    return pair._replace(
        momentum_along=jax.tree.map(jnp.negative, pair.momentum_along),
        momentum_rest=-pair.momentum_rest,
    )


def gram_schmidt(
    z: Float[Array, " axes"], q: Float[Array, " axes"]
) -> tuple[Float[Array, "axes 2"], Float[Array, "2 2"]]:
    """Return orthonormal columns F and a triangular R with [z, q] = F R."""
    length = jnp.sqrt(jnp.sum(jnp.square(z)))
    first = z / length
    along = jnp.sum(first * q)
    beyond = q - along * first
    height = jnp.sqrt(jnp.sum(jnp.square(beyond)))
    frame = jnp.stack([first, beyond / height], axis=1)
    return frame, jnp.stack([length, along, jnp.zeros_like(length), height]).reshape(2, 2)


def _turn(z: Float[Array, "2"], q: Float[Array, "3"]) -> tuple[Float[Array, "2"], ...]:
    """Turn the axes so that z has one coordinate and q two."""
    length = jnp.hypot(z[0], z[1])
    # At z = 0 every axis is along z, and the quotient would be NaN.
    cos = jnp.where(length > 0, z[0] / length, jnp.ones_like(length))
    sin = jnp.where(length > 0, z[1] / length, jnp.zeros_like(length))
    along, across = cos * q[0] + sin * q[1], cos * q[1] - sin * q[0]
    return (
        jnp.stack([length, jnp.zeros_like(length)]),
        jnp.stack([along, jnp.hypot(across, q[2])]),
    )


def _noise(key: PRNGKeyArray, num_rest: int, dtype) -> Float[Array, "3"]:
    """Return N(0, I) in m' > 2 dimensions on two given axes and the one that holds the rest."""
    key_normal, key_chi = jax.random.split(key)
    normal = jax.random.normal(key_normal, (2,), dtype)
    return jnp.concatenate([normal, _chi(key_chi, num_rest - 2, dtype)[None]])


def _chi(key: PRNGKeyArray, degrees: ArrayLike, dtype) -> Float[Array, ""]:
    return jnp.sqrt(2 * jax.random.gamma(key, jnp.asarray(degrees / 2, dtype), dtype=dtype))
