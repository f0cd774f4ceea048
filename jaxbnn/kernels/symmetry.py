"""Moves along the weight symmetries of a network: exact jumps between copies of a mode.

Permuting hidden units, flipping their signs, scaling them and shifting all classes of a softmax
leave the network's output, hence any likelihood of it, as it is. With T the transformation,

    accept with probability min(1, prior(T theta) / prior(theta) |det dT/dtheta|),

or draw from the conditional where it is known. No likelihood is evaluated, so the moves cost
little beside one gradient: put them in a `cycle` after any kernel.

Section 2.3 of Papamarkou et al. says that these symmetries make a posterior multimodal, and section
6.1.3 shows it; moving along them is not in the paper. A flip of a sigmoid unit, which the next
bias absorbs, changes the prior; it connects regions of equal likelihood that are not copies of
one mode.
"""

import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, ArrayLike, Float, PyTree

from jaxbnn.kernels.arguments import check_network, check_positive_number, check_step
from jaxbnn.kernels.refresh import auxiliary_fields
from jaxbnn.kernels.symmetry_priors import (
    allows_both_signs,
    base_distribution,
    exchangeable_sets,
)
from jaxbnn.kernels.symmetry_steps import (
    Move,
    flip_move,
    permutation_move,
    scaling_move,
    shift_move,
)
from jaxbnn.networks import Network, parameter_shapes
from jaxbnn.networks.symmetries import WeightSymmetries, weight_symmetries
from jaxbnn.networks.validation import check_params
from jaxbnn.numerics import check_floating
from jaxbnn.numerics.arguments import check_flag
from jaxbnn.targets import expand_prior
from jaxbnn.targets.prior_trees import is_distribution


@auxiliary_fields()
class SymmetryState(NamedTuple):
    """The parameters; there is nothing to cache.

    Attributes
    ----------
    position
        The parameters.
    """

    position: PyTree


class SymmetryInfo(NamedTuple):
    """What happened in one step.

    Attributes
    ----------
    acceptance_rate
        Mean over the moves.
    by_move
        For each move, named by its kind and layer, the mean over its units of the probability
        with which it was made: 1 for permutations within exchangeable units and for class shifts,
        1/2 for flips of a symmetric prior, which draw each sign afresh.
    """

    acceptance_rate: Float[Array, ""]
    by_move: dict[str, Float[Array, ""]]


def symmetry_moves(
    network: Network,
    prior: PyTree,
    *,
    softmax: bool = False,
    scaling_step: ArrayLike | None = None,
) -> SamplingAlgorithm:
    """Return a kernel that moves along the network's weight symmetries.

    It leaves the posterior invariant for every likelihood, tempered or not, that depends on the
    parameters through the network's output. One step makes each of these moves once, in this
    order:

    class shift   (softmax only) means over classes of the read-out, drawn from their prior given
                  the deviations
    flips         of odd and even activations, each sign drawn from its conditional; of sigmoid and
                  heaviside, unit after unit accepted with the prior ratio
    scalings      of relu, leaky_relu, abs and identity, Metropolis on the log scale
    permutations  at random among units that are exchangeable under the prior

    A prior that breaks a symmetry costs that move and no other; a warning names it, as does
    `explain_symmetries`.

    Parameters
    ----------
    network
        The network.
    prior
        A PyTree of NumPyro distributions shaped like the parameters, or a prefix of that. Its
        hyper-parameters may be traced; what they break is then not seen, but paid for in the
        acceptance.
    softmax
        Whether the likelihood is unchanged by a constant added to all outputs of a datum, as a
        softmax is. Asking for it under another likelihood gives a wrong posterior.
    scaling_step
        Standard deviation of the log scale proposed; may be traced. None, the default, takes
        1.7 / sqrt(parameters of a unit).

    Returns
    -------
    `init(position, rng_key=None)` and `step(rng_key, state)` with `SymmetryState`, `SymmetryInfo`.

    Raises
    ------
    ValueError
        If the network and prior leave no move, the prior is not shaped like the parameters, a
        softmax is asked for without a Dense read-out of two or more outputs, or scaling_step is
        not positive; `init`, if the position is not shaped like the parameters.

    Examples
    --------
    >>> from jaxbnn.networks import init, mlp
    >>> network = mlp((4, 3, 3), "sigmoid")
    >>> kernel = symmetry_moves(network, dist.Normal(0.0, 10.0**0.5), softmax=True)
    >>> state = kernel.init(init(jax.random.key(0), network))
    >>> state, info = jax.jit(kernel.step)(jax.random.key(1), state)
    >>> sorted(info.by_move)
    ['class shift', 'flips of layer 0 (Dense)', 'permutations of layer 0 (Dense)']
    """
    moves, _, lost = _plan(network, prior, softmax, scaling_step)
    for sentence in lost:
        warnings.warn(sentence, stacklevel=2)
    if not moves:
        raise ValueError(
            "this network and prior leave no symmetry to move along; leave symmetry_moves out."
        )
    shapes = parameter_shapes(network)

    def init(position, rng_key=None):
        if jax.tree.map(jnp.shape, position) != jax.tree.map(lambda leaf: leaf.shape, shapes):
            wanted, found = (jax.tree.map(jnp.shape, tree) for tree in (shapes, position))
            raise ValueError(
                f"the position must be shaped like the network's parameters, {wanted}, but has the "
                f"shapes {found}; chains go through jax.vmap."
            )
        check_params(network, position)
        for leaf in jax.tree.leaves(position):
            check_floating("the position", leaf)
        return SymmetryState(position)

    def step(rng_key, state):
        check_step(rng_key, state)
        params, by_move = state.position, {}
        for (name, move), key in zip(
            moves.items(), jax.random.split(rng_key, len(moves)), strict=True
        ):
            params, by_move[name] = move(key, params)
        mean = jnp.mean(jnp.stack(list(by_move.values())))
        return SymmetryState(params), SymmetryInfo(mean, by_move)

    return SamplingAlgorithm(init, step)


def explain_symmetries(network: Network, prior: PyTree, *, softmax: bool = False) -> str:
    """Return, for people, which moves `symmetry_moves` makes and which are lost and why.

    Parameters
    ----------
    network, prior, softmax
        As in `symmetry_moves`.

    Raises
    ------
    ValueError, TypeError
        As `symmetry_moves`.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> print(explain_symmetries(mlp((2, 3, 1), "tanh"), dist.Normal(1.0, 1.0)))
    flips of layer 0 (Dense): 3 units
    permutations of layer 0 (Dense): 3 units
    >>> print(explain_symmetries(mlp((2, 3, 1), "tanh"), dist.Exponential(1.0)))
    permutations of layer 0 (Dense): 3 units
    the sign flips of layer 0 (Dense) are lost, because the prior does not allow both signs ...
    """
    _, kept, lost = _plan(network, prior, softmax, None)
    return "\n".join((*kept, *weight_symmetries(network).lost, *lost))


def _plan(
    network: Network, prior: PyTree, softmax: bool, scaling_step: ArrayLike | None
) -> tuple[dict[str, Move], list[str], list[str]]:
    """Return the moves by name, one line about each, and a sentence for each that the prior breaks.

    Permutations come last, as they neither help nor hinder what is before them.
    """
    check_network("symmetry_moves", network)
    check_flag("softmax", softmax)
    if scaling_step is not None:
        check_positive_number("scaling_step", scaling_step)
    priors = jax.tree.leaves(expand_prior(prior, network), is_leaf=is_distribution)
    found = weight_symmetries(network)
    moves: dict[str, Move] = {}
    kept, lost = [], []

    def keep(name: str, size: str, move: Move) -> None:
        moves[name] = move
        kept.append(f"{name}: {size}")

    if softmax:
        read_out, broken = _shiftable(found, priors)
        lost += broken
        if read_out:
            keep("class shift", f"{len(read_out)} arrays", shift_move(priors, read_out))
    for units in found.flips:
        if all(allows_both_signs(priors[axis.leaf]) for axis in units.incoming + units.outgoing):
            keep(f"flips of {units.name}", f"{units.size} units", flip_move(priors, units))
        else:
            lost.append(
                f"the sign flips of {units.name} are lost, because the prior does not allow both "
                "signs of its incoming and outgoing weights."
            )
    for units in found.scalings:
        move = scaling_move(priors, units, scaling_step)
        keep(f"scalings of {units.name}", f"{units.size} units", move)
    for units in found.permutations:
        sets = exchangeable_sets(priors, units)
        sizes = [units.size] if sets is None else np.bincount(sets).tolist()
        if max(sizes) > 1:
            size = " + ".join(map(str, sizes)) + " units"
            name = f"permutations of {units.name}"
            keep(name, size, permutation_move(priors, units, sets))
        else:
            lost.append(
                f"the permutations of {units.name} are lost, because the prior tells every unit "
                "from every other; give units the same prior."
            )
    return moves, kept, lost


def _shiftable(found: WeightSymmetries, priors: list) -> tuple[tuple[int, ...], list[str]]:
    shift = found.class_shift
    if shift is None:
        raise ValueError(
            "softmax=True needs a network that ends in a Dense with two or more features; leave "
            "it out for this network."
        )
    read_out, lost = [], []
    for leaf, what in ((shift.weights, "weights"), (shift.bias, "bias")):
        if leaf is None:
            continue
        family = type(base_distribution(priors[leaf]))
        if family in (dist.Normal, dist.Uniform):
            read_out.append(leaf)
        else:
            lost.append(
                f"the class shift of the read-out's {what} is lost, because its prior is "
                f"{family.__name__}; it is known for Normal and Uniform priors."
            )
    return tuple(read_out), lost
