"""Autocovariances and autocorrelations by the fast Fourier transform."""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from jaxbnn.diagnostics.draws import chain_moments, check_draws, per_coordinate, standardise
from jaxbnn.numerics import check_count


def autocorrelation(draws: ArrayLike, max_lag: int | None = None) -> Float[Array, "chain lag ..."]:
    """Autocorrelations gamma_k / gamma_0 of each chain at lags 0 to `max_lag`.

    gamma_k = (1/v) sum_{i=1}^{v-k} (x_i - xbar)(x_{i+k} - xbar): divided by v at every lag, which
    keeps the sequence positive definite and its far end quiet.

    Parameters
    ----------
    draws
        Array (chain, draw, ...), at least two draws per chain.
    max_lag
        The largest lag, at most the number of draws less one, which is the default.

    Returns
    -------
    Array (chain, max_lag + 1, ...). NaN for a constant chain.

    Raises
    ------
    ValueError
        Fewer than two draws, no chain axis, or a lag that is negative or too large.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> autocorrelation(jnp.array([[1.0, -1.0, 1.0, -1.0]])).round(2).tolist()
    [[1.0, -0.75, 0.5, -0.25]]
    """
    checked = check_draws("autocorrelation", draws)
    longest = checked.shape[1] - 1
    if max_lag is not None:
        check_count("max_lag", max_lag, 0)
    lag = longest if max_lag is None else int(max_lag)
    if not 0 <= lag <= longest:
        raise ValueError(f"max_lag must be between 0 and {longest} (draws - 1), but is {lag}.")
    return per_coordinate(_autocorrelation, checked, lag)


def _autocorrelation(x, max_lag):
    return autocorrelations(x)[:, : max_lag + 1]


def autocorrelations(x: Float[Array, "chain draw"]) -> Float[Array, "chain draw"]:
    """Autocorrelations of each chain at all lags."""
    _, _, centred = chain_moments(standardise(x))
    autocovariance = _inverse(jnp.abs(_transform(centred)) ** 2, x.shape[1])
    return autocovariance / autocovariance[:, :1]


def mean_autocovariance(centred: Float[Array, "chain draw"]) -> Float[Array, " draw"]:
    """Autocovariances averaged over chains; one inverse transform for all of them."""
    return _inverse(jnp.mean(jnp.abs(_transform(centred)) ** 2, axis=0), centred.shape[1])


def _transform(centred):
    # Zeros to twice the length keep the end of a chain from meeting its beginning.
    return jnp.fft.rfft(centred, n=_fast_length(2 * centred.shape[-1]), axis=-1)


def _inverse(power, length):
    full = jnp.fft.irfft(power, n=_fast_length(2 * length), axis=-1)
    return full[..., :length] / length


def _fast_length(length: int) -> int:
    """Smallest even number of the form 2^a 3^b 5^c that is at least `length`."""
    best = 2 ** max(1, (length - 1).bit_length())
    for five in range(length.bit_length()):
        for three in range(length.bit_length()):
            odd = 5**five * 3**three
            if odd < best:
                best = min(best, odd * 2 ** max(1, (-(-length // odd) - 1).bit_length()))
    return best
