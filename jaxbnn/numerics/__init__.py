from jaxbnn.numerics.checks import check_finite, check_positive, is_concrete
from jaxbnn.numerics.sums import sum_of_differences

__all__ = ["check_finite", "check_positive", "is_concrete", "sum_of_differences"]
