"""Which transformations of the weights leave a network's output as it is.

The values between two activations are a segment, with one entry per unit (a Conv's channel is one
unit). Each activation says how a change of the segment before it shows behind it:

    permutation   every activation       f(z[p]) = f(z)[p]
    sign flip     odd                    f(-z) = -f(z)        tanh, erf, hard_tanh, sign, identity
                  even                   f(-z) = f(z)         abs
                  reflecting             f(-z) = 1 - f(z)     sigmoid, heaviside
    scaling       homogeneous, c > 0     f(c z) = c f(z)      relu, leaky_relu, abs, identity

Segments that have to change together (before and behind an activation, the two terms of a
Residual) are joined; those that must not change (input, output, a segment beside any other
activation) are held. A joined set of segments that is not held is one `Units`.

Section 2.3 of Papamarkou et al. names permutations and sign flips; the reflections, which turn a
sign flip of a sigmoid into a change of the next bias, are not in the paper.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from jaxbnn.networks.activations import activation_function
from jaxbnn.networks.layers import Dense
from jaxbnn.networks.network import Network, check_network, parameter_shapes
from jaxbnn.networks.symmetries.segments import Absorption, Axis, Segments, trace_segments

_ODD = ("tanh", "erf", "hard_tanh", "sign", "identity")
_EVEN = ("abs",)
_REFLECTING = ("sigmoid", "heaviside")
_HOMOGENEOUS = ("relu", "leaky_relu", "abs", "identity")


class Units(NamedTuple):
    """Hidden units that can be transformed, and the parameters that a transformation touches.

    Attributes
    ----------
    name
        The first layer that writes them, for people.
    size
        Number of units.
    incoming
        Weights and biases that produce them; the first are the weights of the first such layer.
    outgoing
        Weights that read them.
    absorptions
        Biases that absorb the constant of a reflection, f(-z) = 1 - f(z) (sigmoid, heaviside).
    """

    name: str
    size: int
    incoming: tuple[Axis, ...]
    outgoing: tuple[Axis, ...]
    absorptions: tuple[Absorption, ...] = ()


class ClassShift(NamedTuple):
    """The read-out of a softmax: a constant added to all classes changes no probability.

    Attributes
    ----------
    weights, bias
        Indices of the arrays in `jax.tree.leaves(params)`; bias is None for a layer without. The
        classes are their last axis.
    size
        Number of constants: one for each row of the weights, then one for the bias.
    """

    weights: int
    bias: int | None
    size: int


class WeightSymmetries(NamedTuple):
    """The symmetries of a network.

    Attributes
    ----------
    permutations, flips, scalings
        The units that can be permuted, flipped in sign, scaled; in the order of the layers.
    class_shift
        The shift under a softmax, None without at least two outputs of a Dense read-out.
    lost
        One sentence for every sign flip that the activation has and the wiring takes away.
    """

    permutations: tuple[Units, ...]
    flips: tuple[Units, ...]
    scalings: tuple[Units, ...]
    class_shift: ClassShift | None
    lost: tuple[str, ...]


def weight_symmetries(network: Network) -> WeightSymmetries:
    """Return the permutations, sign flips, scalings and class shifts of a network.

    Permutations reach every hidden unit that is not tied to the input or the output by a
    Residual. A callable is taken as elementwise with no further property, unless it is one of the
    functions that have a name.

    Parameters
    ----------
    network
        The network. Everything returned is plain data, static under `jax.jit`.

    Raises
    ------
    ValueError
        An activation whose name is unknown.
    TypeError
        A layer of which it is not known what passes through it.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> found = weight_symmetries(mlp((4, 3, 2), "sigmoid"))
    >>> [units.size for units in found.permutations], len(found.flips), len(found.scalings)
    ([3], 1, 0)
    >>> weight_symmetries(mlp((4, 3, 2), "sigmoid", bias=False)).lost[0]
    'the sign flips of layer 0 (Dense) are lost, because layer 2 (Dense) has no bias ...'
    """
    check_network(network)
    segments = trace_segments(network)
    ends = {0, segments.output}
    around = [(before, behind) for _, before, behind in segments.activations]
    homogeneous = [_is(function, _HOMOGENEOUS) for function, _, _ in segments.activations]
    scalings = _joined_units(
        segments,
        [pair for pair, joins in zip(around, homogeneous, strict=True) if joins],
        ends.union(*(pair for pair, joins in zip(around, homogeneous, strict=True) if not joins)),
    )
    flips, lost = _flips(segments, ends)
    return WeightSymmetries(
        tuple(units for units in hidden_units(network) if units.size > 1),
        flips,
        scalings,
        _class_shift(network, segments),
        lost,
    )


def hidden_units(network: Network) -> tuple[Units, ...]:
    """Return all hidden units of a network, but those that a Residual ties to input or output.

    One `Units` for each set of layers whose units belong together, in the order of the layers;
    these are the units that can be permuted, and layers of a single unit.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> [units.size for units in hidden_units(mlp((4, 3, 1, 2)))]
    [3, 1]
    """
    segments = trace_segments(network)
    around = [(before, behind) for _, before, behind in segments.activations]
    return _joined_units(segments, around, {0, segments.output})


def _flips(segments: Segments, ends: set[int]) -> tuple[tuple[Units, ...], tuple[str, ...]]:
    joined, held, lost = [], set(ends), []
    reflected: dict[int, list[int]] = {}
    for function, before, behind in segments.activations:
        if _is(function, _ODD):
            joined.append((before, behind))
            continue
        held.add(behind)
        if _is(function, _REFLECTING):
            reason = _no_reflection(segments, function, before, behind)
            if reason is None:
                reflected.setdefault(before, []).append(behind)
                continue
            if behind != segments.output:
                name = _first_writer(segments, before)
                lost.append(f"the sign flips of {name} are lost, because {reason}.")
        if not _is(function, _EVEN):
            held.add(before)
    return _joined_units(segments, joined, held, reflected), tuple(lost)


def _no_reflection(segments: Segments, function, before: int, behind: int) -> str | None:
    """Return why what is behind a sigmoid or heaviside cannot turn from a into 1 - a."""
    if behind == segments.output:
        return "they are the output"
    if any(behind in tie for tie in segments.ties):
        return "a Residual adds them to other units"
    if any(behind == start for _, start, _ in segments.activations):
        return "another activation follows before the next weights"
    for reader in segments.readers[behind]:
        if reader.absorption is None:
            return f"{reader.name} has no bias to absorb them; give it one"
    # heaviside(-z) = 1 - heaviside(z) fails at exactly 0, which a bias makes a null event.
    writers = segments.writers[before]
    if _is(function, ("heaviside",)) and not (writers and all(w.bias for w in writers)):
        return "without a bias just before it, heaviside can be given exactly 0"
    return None


def _joined_units(
    segments: Segments,
    pairs: Iterable[tuple[int, int]],
    held: set[int],
    reflected: dict[int, list[int]] | None = None,
) -> tuple[Units, ...]:
    """Join segments by pairs and by the Residuals, and describe each set that is not held."""
    root = list(range(len(segments.sizes)))
    for a, b in (*pairs, *segments.ties):
        old, new = root[a], root[b]
        root = [new if r == old else r for r in root]
    held_roots = {root[segment] for segment in held}
    found = []
    for label in dict.fromkeys(root):  # in the order of the first segment
        members = [segment for segment, r in enumerate(root) if r == label]
        if label not in held_roots and any(segments.writers[m] for m in members):
            found.append(_describe(segments, members, reflected or {}))
    return tuple(found)


def _describe(segments: Segments, members: list[int], reflected: dict[int, list[int]]) -> Units:
    # A flattened image tied to a Dense: its channels are the units, and the Dense has blocks.
    size = min(segments.sizes[m] for m in members)

    def refine(axis: Axis, segment: int) -> Axis:
        return axis._replace(blocks=axis.blocks * (segments.sizes[segment] // size))

    incoming, outgoing, absorptions = [], [], []
    for m in members:
        for writer in segments.writers[m]:
            axes = (writer.weights, writer.bias) if writer.bias else (writer.weights,)
            incoming += [refine(axis, m) for axis in axes]
        outgoing += [refine(reader.weights, m) for reader in segments.readers[m]]
        for behind in reflected.get(m, ()):
            for reader in segments.readers[behind]:
                assert reader.absorption is not None  # else the reflection is lost
                weights = refine(reader.weights, m)
                outgoing.append(weights)
                absorptions.append(reader.absorption._replace(weights=weights))
    name = next(_first_writer(segments, m) for m in members if segments.writers[m])
    return Units(name, size, tuple(incoming), tuple(outgoing), tuple(absorptions))


def _first_writer(segments: Segments, segment: int) -> str:
    writers = segments.writers[segment]
    return writers[0].name if writers else "units behind an activation"


def _class_shift(network: Network, segments: Segments) -> ClassShift | None:
    last = network.layers[-1]
    if not isinstance(last, Dense) or last.features < 2:
        return None
    (writer,) = segments.writers[segments.output]
    rows = parameter_shapes(network)[-1]["w"].shape[0]
    bias = writer.bias.leaf if writer.bias else None
    return ClassShift(writer.weights.leaf, bias, rows + last.bias)


def _is(function: str | Callable, names: tuple[str, ...]) -> bool:
    """Whether a function is one of those names, or the very function that a name stands for."""
    if isinstance(function, str):
        return function in names
    return any(function is activation_function(name) for name in names)
