"""The statistical test kit: what proves that a kernel is right, with known error rates."""

from tests.kit.dkw import Comparison, chains_needed, detectable_distance, threshold
from tests.kit.exact_start import (
    Target,
    check_exact_start,
    joint_functions,
    model_target,
    position_functions,
    posterior_target,
)
from tests.kit.flux import check_deterministic_map, check_flux_identity, random_pairs
from tests.kit.geweke import check_geweke, update_with
from tests.kit.sizes import both_sizes, for_mutants, sizes_with_mutants
from tests.kit.traces import counting

__all__ = [
    "Comparison",
    "Target",
    "both_sizes",
    "chains_needed",
    "check_deterministic_map",
    "check_exact_start",
    "check_flux_identity",
    "check_geweke",
    "counting",
    "detectable_distance",
    "for_mutants",
    "joint_functions",
    "model_target",
    "position_functions",
    "posterior_target",
    "random_pairs",
    "sizes_with_mutants",
    "threshold",
    "update_with",
]
