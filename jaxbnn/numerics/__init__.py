from jaxbnn.numerics.sums import sum_of_differences

__all__ = ["sum_of_differences"]
