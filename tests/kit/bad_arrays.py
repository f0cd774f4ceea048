"""Arrays that a user may hand over by mistake, or that are legal and extreme, by kind."""

import numpy as np

# What an array of a kind may lead to: an answer, a sentence, or either of them.
ORDINARY = ("ordinary", "one row", "zeros", "duplicated columns", "constant column", "integers")
EXTREME = ("huge (1e30)", "large (1e15)", "tiny (1e-30)", "subnormal", "mixed scales")
BROKEN = (
    "no rows",
    "NaN",
    "infinity",
    "booleans",
    "half precision",
    "double precision",
    "complex",
    "strings",
    "no array",
    "rank too small",
    "rank too large",
)
KINDS = (*ORDINARY, *EXTREME, *BROKEN)

# Not numbers at all: no function can make sense of them.
MEANINGLESS = ("complex", "strings", "no array")


def bad_array(kind: str, shape: tuple[int, ...], rng: np.random.Generator):
    """Return an array of `shape`, (rows, ...), or what its kind makes of it."""
    values = rng.normal(size=shape).astype(np.float32)
    if kind in ("one row", "no rows"):
        return np.atleast_1d(values)[: 1 if kind == "one row" else 0]
    if kind == "zeros":
        return np.zeros_like(values)
    if kind == "booleans":
        return values > 0
    if kind == "duplicated columns":
        return np.repeat(values[..., :1], shape[-1], axis=-1)
    if kind == "constant column":
        values[..., :1] = 3.0
        return values
    if kind in _SCALES:
        return (values.astype(np.float64) * _SCALES[kind]).astype(np.float32)
    if kind == "mixed scales":
        return values * 10 ** rng.uniform(-15, 15, shape).astype(np.float32)
    if kind in ("NaN", "infinity"):
        values[(0,) * len(shape)] = np.nan if kind == "NaN" else np.inf
        return values
    if kind == "rank too small":
        return values[0] if len(shape) > 1 else values.sum()
    if kind == "rank too large":
        return values[..., None, None]
    if kind == "no array":
        return [None, object(), {"a": 1}, values.tolist()][rng.integers(3)]
    return values.astype(_DTYPES.get(kind, np.float32))


_SCALES = {"huge (1e30)": 1e30, "large (1e15)": 1e15, "tiny (1e-30)": 1e-30, "subnormal": 1e-42}
_DTYPES = {
    "integers": np.int32,
    "half precision": np.float16,
    "double precision": np.float64,
    "complex": np.complex64,
    "strings": np.str_,
}

# Hyper-parameters that are no positive finite number, and extreme ones that are.
BAD_NUMBERS = (0.0, -1.0, float("nan"), float("inf"), "0.1", None, 1j, (), (0.1, -0.1), True)
EXTREME_NUMBERS = (1e-30, 1e-10, 1e10, 1e30)
