"""The data sets, split and standardised as in bde's benchmark."""

from experiments.benchmarks import check_known
from experiments.benchmarks.command.tables import table
from experiments.datasets import TABULAR_NAMES, Split, a_fifth_held_out, standardised, tabular

# Seeds of the samplers; the split is the same for all.
SEEDS = {"airfoil": 5, "concrete": 3, "energy": 3, "yacht": 3, "bikesharing": 1}
_SPLIT = 0


def split_of(name: str, *, is_development: bool = False) -> Split:
    """Return the standardised split of a set; for development, one of its training rows only.

    Raises
    ------
    InputError
        An unknown set; a file that is missing or damaged.
    """
    check_known([name], SEEDS)
    if name in TABULAR_NAMES:
        split = tabular(name, _SPLIT)
    else:
        whole = table(name)
        split = a_fifth_held_out(whole.x, whole.y, _SPLIT)
    if is_development:
        split = a_fifth_held_out(split.x_train, split.y_train, _SPLIT)
    return standardised(split)
