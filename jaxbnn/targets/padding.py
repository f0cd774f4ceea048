"""Rows to fill up the vectors that a CPU works on.

A CPU works on 8 or 16 numbers at once, and on the numbers left over one by one. Repeating ten of
150 rows, which makes 160, takes a fifth off the time of a narrow network's log density.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Shaped

_VECTOR = 16
# Below, a row more is a large part of the work; above, the rows left over are a small one.
_FEWEST, _MOST = 2 * _VECTOR, 64 * _VECTOR


def pad_rows(
    x: Shaped[Array, "n ..."], y: Shaped[Array, "n ..."]
) -> tuple[Shaped[Array, "m ..."], Shaped[Array, "m ..."], Bool[Array, " m"] | None]:
    """Repeat the first rows until the number of rows is a multiple of 16, if that pays.

    Parameters
    ----------
    x, y
        Data; rows are independent of each other.

    Returns
    -------
    x and y with some more rows, and which rows are data; None where all are.

    Examples
    --------
    >>> x, y, is_datum = pad_rows(jnp.ones((150, 4)), jnp.zeros(150))
    >>> x.shape, y.shape, int(is_datum.sum())
    ((160, 4), (160,), 150)
    """
    n = x.shape[0]
    padding = -n % _VECTOR
    if padding == 0 or not _FEWEST <= n <= _MOST:
        return x, y, None
    x, y = (jnp.concatenate([rows, rows[:padding]]) for rows in (x, y))
    return x, y, jnp.arange(n + padding, dtype=jnp.int32) < n
