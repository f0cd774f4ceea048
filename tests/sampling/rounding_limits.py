"""How far one step may differ by rounding alone where sums over data are added in another order."""

_TOLERANCE = {"float32": 1e-5, "float64": 1e-12}
# A Gibbs draw solves with factors of sums over data: rounding is multiplied by their condition.
_GIBBS_TOLERANCE = {"float32": 1e-4, "float64": 1e-12}


def limit_of(kernel: str, dtype: str) -> float:
    """Return the largest relative difference of any leaf."""
    return (_GIBBS_TOLERANCE if kernel == "gibbs" else _TOLERANCE)[dtype]
