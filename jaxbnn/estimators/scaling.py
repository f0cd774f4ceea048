"""Numbers in units of the training rows' standard deviation, and back."""

from typing import Any, NamedTuple

import numpy as np

from jaxbnn.numerics.spread import mean_and_sd, standardised


class Scaling(NamedTuple):
    """Mean and standard deviation: numbers of a target, arrays (columns,) of inputs."""

    mean: Any
    sd: Any

    def standardised(self, values: np.ndarray) -> np.ndarray:
        """Return values less the mean, in standard deviations, in the samplers' precision."""
        return ((values - self.mean) / self.sd).astype(np.float32)

    def standardised_inputs(self, values: np.ndarray) -> np.ndarray:
        """Return inputs so, none further out than single precision can tell apart."""
        return standardised(values, self.mean, self.sd).astype(np.float32)

    def in_units(self, values: Any) -> np.ndarray:
        """Return what `standardised` was given."""
        return np.asarray(values, float) * self.sd + self.mean


def learn_scaling(values: np.ndarray, sd_of_constant: float = 1.0) -> Scaling:
    """Return the scaling of rows; what is constant in them has the standard deviation given.

    With an infinite one all its values become 0.

    Examples
    --------
    >>> scaling = learn_scaling(np.array([[1.0, 5.0], [3.0, 5.0]]), np.inf)
    >>> scaling.standardised(np.array([[3.0, 8.0]])).tolist()
    [[1.0, 0.0]]
    """
    mean, sd = mean_and_sd(values)
    return Scaling(mean, np.where(sd == 0, sd_of_constant, sd))
