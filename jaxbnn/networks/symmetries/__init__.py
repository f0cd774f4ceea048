from jaxbnn.networks.symmetries.canonical import canonicalize
from jaxbnn.networks.symmetries.groups import (
    Absorption,
    Axis,
    ClassShift,
    Units,
    WeightSymmetries,
    hidden_units,
    weight_symmetries,
)
from jaxbnn.networks.symmetries.transformations import (
    flip_units,
    jacobian_exponent,
    outgoing_sums,
    permute_units,
    scale_units,
    shift_classes,
    sum_per_unit,
)

__all__ = [
    "Absorption",
    "Axis",
    "ClassShift",
    "Units",
    "WeightSymmetries",
    "canonicalize",
    "flip_units",
    "hidden_units",
    "jacobian_exponent",
    "outgoing_sums",
    "permute_units",
    "scale_units",
    "shift_classes",
    "sum_per_unit",
    "weight_symmetries",
]
