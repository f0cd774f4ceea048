"""How well the rungs of a ladder of temperatures talk to each other, and a better ladder."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Shaped

from jaxbnn.diagnostics.draws import check_draws
from jaxbnn.numerics import check_finite, check_real, is_concrete
from jaxbnn.numerics.arrays import check_held, float_dtype


def swap_acceptance(
    log_likelihoods: ArrayLike, temperatures: ArrayLike | Sequence[float]
) -> Float[Array, " pair"]:
    """Estimate the acceptance of swaps between neighbouring rungs from what the rungs drew.

    The mean over draws of min(1, exp((t_i - t_{i+1}) (l_{i+1} - l_i))), l the log likelihood at a
    rung, for power posteriors of a tempered likelihood. All draws count, whether or not a swap
    was proposed then.

    Parameters
    ----------
    log_likelihoods
        (chain, draw, rung).
    temperatures
        (rung,).

    Returns
    -------
    (rung - 1,) between 0 and 1; a NaN log ratio counts as a rejection.

    Raises
    ------
    ValueError
        Shapes that do not fit.

    Examples
    --------
    >>> swap_acceptance(jnp.zeros((1, 2, 3)), jnp.array([0.0, 0.5, 1.0])).tolist()
    [1.0, 1.0]
    """
    draws = check_draws("swap_acceptance", log_likelihoods)
    check_real("temperatures", temperatures)
    check_finite("temperatures", temperatures, "give one a rung")
    if draws.ndim != 3 or np.shape(temperatures) != draws.shape[2:]:
        raise ValueError(
            "swap_acceptance needs log_likelihoods (chain, draw, rung) and one temperature a rung, "
            f"but the shapes are {draws.shape} and {np.shape(temperatures)}."
        )
    dtype = float_dtype(draws.dtype)
    steps = jnp.diff(jnp.asarray(temperatures, dtype))[None, None]
    log_ratio = jnp.where(steps == 0, 0, -steps * jnp.diff(draws.astype(dtype), axis=2))
    rate = jnp.where(jnp.isnan(log_ratio), 0, jnp.exp(jnp.minimum(log_ratio, 0)))
    return jnp.mean(rate, axis=(0, 1))


def by_replica(
    values: ArrayLike, replica: ArrayLike, order: ArrayLike | None = None
) -> Shaped[Array, "... replica"]:
    """Follow the replicas of a ladder: values by rung made values by replica.

    A replica that is stuck lowers the acceptance of every rung a little, as swaps pass it round.
    Sorted by replica, its own is 0. Works on one step, inside `collect`, and on stacked draws:

        def collect(state, info):
            rate = by_replica(info.inner.acceptance_rate, state.trips.replica, info.swaps.order)
            return {"position": state.position, "replica_acceptance": rate}

    Parameters
    ----------
    values
        (..., rung).
    replica
        (..., rung) numbers of the replicas at the rungs: `state.trips.replica`.
    order
        (..., rung) of the swaps after which `replica` holds, rung i having got the
        replica of rung order[i]; for values from before these swaps, as the Infos of the moves
        are. None for values of the state itself, such as `info.log_likelihood`.

    Returns
    -------
    (..., replica).

    Raises
    ------
    ValueError
        Shapes that differ; replicas that do not name each rung once.
    TypeError
        Replicas that are no whole numbers.

    Examples
    --------
    >>> by_replica(jnp.array([0.5, 0.0, 0.7]), jnp.array([2, 0, 1])).tolist()
    [0.0, 0.699..., 0.5]
    """
    check_real("values", values)
    check_held("values", values)
    if replica is None:
        raise TypeError("replica must be whole numbers, but is None; give infos.replica.")
    for name, other in (("replica", replica), ("order", order)):
        if other is not None:
            _check_order(name, other, np.shape(values))
    held = jnp.asarray(replica)
    if order is not None:
        held = jnp.take_along_axis(held, jnp.argsort(jnp.asarray(order), axis=-1), axis=-1)
    return jnp.take_along_axis(jnp.asarray(values), jnp.argsort(held, axis=-1), axis=-1)


def _check_order(name: str, order: ArrayLike, shape: tuple[int, ...]) -> None:
    check_real(name, order)
    if not jnp.issubdtype(jnp.asarray(order).dtype, jnp.integer):
        raise TypeError(f"{name} must hold the replicas' numbers, but holds no whole numbers.")
    if len(shape) < 1 or np.shape(order) != shape:
        raise ValueError(
            f"by_replica needs {name} of the shape of values, (..., rung), but their shapes are "
            f"{np.shape(order)} and {shape}."
        )
    if is_concrete(order) and (np.sort(order, axis=-1) != np.arange(shape[-1])).any():
        raise ValueError(
            f"{name} must hold each number from 0 to {shape[-1] - 1} once along its last axis; "
            "give the numbers that the kernel's state and Info hold."
        )


def equalise_rejections(
    temperatures: ArrayLike | Sequence[float], acceptance_rates: ArrayLike | Sequence[float]
) -> Float[Array, " rung"]:
    """Move the inner temperatures so that all neighbours reject swaps equally often.

    Syed et al. (2022), section 5: the rejection rates r_i of neighbours add up to the
    communication barrier L(t_i) = r_1 + ... + r_i; the new ladder cuts L(1) into equal pieces,
    L being linear between the old rungs. Run a short warm-up, call this, and start again from the
    new ladder; two or three rounds settle it. The ends stay where they are.

    Parameters
    ----------
    temperatures
        (rung,) increasing.
    acceptance_rates
        (rung - 1,) of swaps between neighbours, from `swap_acceptance` or counted.

    Returns
    -------
    (rung,) increasing, from the same first to the same last temperature.

    Raises
    ------
    ValueError
        Rates outside [0, 1], or not one for each pair of neighbours; temperatures that fall;
        traced numbers.

    Examples
    --------
    >>> ladder = equalise_rejections([0.0, 0.5, 1.0], [0.4, 0.8])
    >>> [round(float(t), 3) for t in ladder]
    [0.0, 0.333, 1.0]
    """
    check_real("temperatures", temperatures)
    check_real("acceptance_rates", acceptance_rates)
    if not is_concrete((temperatures, acceptance_rates)):
        raise ValueError(
            "equalise_rejections looks at numbers that jax.jit, jax.vmap or jax.grad traces; call "
            "it outside."
        )
    check_finite("temperatures", np.asarray(temperatures), "give them in order")
    ladder = np.asarray(temperatures)
    ladder = ladder.astype(float_dtype(ladder.dtype))
    rates = np.asarray(acceptance_rates, ladder.dtype)
    if ladder.ndim != 1 or rates.shape != (len(ladder) - 1,):
        raise ValueError(
            "equalise_rejections needs a row of temperatures and one rate for each pair of "
            f"neighbours, but the shapes are {ladder.shape} and {rates.shape}."
        )
    if (np.diff(ladder) < 0).any():
        raise ValueError(
            f"equalise_rejections needs temperatures that never fall, but they are "
            f"{ladder.tolist()}; give them, and the rates of their pairs, in rising order."
        )
    if not ((rates >= 0) & (rates <= 1)).all():
        raise ValueError(
            f"acceptance rates must lie between 0 and 1, but are {rates.tolist()}; divide the "
            "number of accepted swaps by that of proposed ones."
        )
    # A floor keeps rungs apart where no swap is ever rejected.
    barrier = np.append(0, np.cumsum(np.maximum(1 - rates, 1e-3)))
    new = np.interp(np.linspace(0, barrier[-1], len(ladder)), barrier, ladder)
    new[[0, -1]] = ladder[[0, -1]]
    return jnp.asarray(new)
