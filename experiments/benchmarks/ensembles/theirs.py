"""bde on one data set: `python theirs.py data.npz predictions.npz SEED`.

Run by the environment that the benchmark makes, and therefore without this repository's packages.
"""

import sys
from pathlib import Path

import numpy as np


def main() -> None:
    """Fit at the settings of the package's paper, and write each draw's mean and deviation."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "command"))
    from programs import bde_numbers, bde_settings

    data, result, seed = sys.argv[1:]
    given = np.load(data)
    parts = (given[name] for name in ("x_train", "y_train", "x_test"))
    # Member i of bde begins at seed + i: at neighbouring seeds most members would be the same.
    mean, sd = bde_numbers(1000 * int(seed), *parts)
    chains = bde_settings()["n_members"]
    shape = (chains, len(mean) // chains, mean.shape[1])
    np.savez(result, mean=mean.reshape(shape), sd=sd.reshape(shape))


if __name__ == "__main__":
    main()
