"""The teacher-student experiment: data with an exact draw of their posterior."""

from jaxbnn.thermalization.annealing import annealing, sample_annealed
from jaxbnn.thermalization.comparison import Comparison, Estimate, compare
from jaxbnn.thermalization.observables import mean_squared_error, score_statistic
from jaxbnn.thermalization.optimised_starts import optimised_start
from jaxbnn.thermalization.posteriors import classical_posterior
from jaxbnn.thermalization.teachers import (
    TeacherStudent,
    near_zero_position,
    teacher_student,
)

__all__ = [
    "Comparison",
    "annealing",
    "classical_posterior",
    "compare",
    "mean_squared_error",
    "near_zero_position",
    "optimised_start",
    "sample_annealed",
    "score_statistic",
    "teacher_student",
]
