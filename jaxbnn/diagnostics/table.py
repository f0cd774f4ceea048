"""The table a person reads first: estimates, their errors, and whether to believe them."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Float, Int, PyTree

from jaxbnn.diagnostics.draws import (
    check_draws,
    check_rounding,
    in_doubles,
    per_coordinate,
    split_chains,
)
from jaxbnn.diagnostics.energy_errors import energy_error_in_words
from jaxbnn.diagnostics.ess import ess_of, tail_indicator
from jaxbnn.diagnostics.findings import warnings_in_words
from jaxbnn.diagnostics.functions import check_positions, evaluate
from jaxbnn.diagnostics.monte_carlo_error import mcse_of_sd, pooled_moments
from jaxbnn.diagnostics.movement import Movement, movement
from jaxbnn.diagnostics.ranks import fold, normal_scores, quantile, sorted_draws
from jaxbnn.diagnostics.rhat import larger_rhat, split_rhat_of
from jaxbnn.numerics import check_real
from jaxbnn.numerics.arguments import as_names
from jaxbnn.numerics.arrays import float_dtype, in_memory
from jaxbnn.numerics.checks import check_outside

# Leaves are judged in one call, hence by one compiled program, where a copy costs little.
_COPY_BYTES = 2**27
# A rate is a mean of exponentials in float32, and may exceed 1 by so much.
_ROUNDING = 1e-5


@dataclass(frozen=True, eq=False)
class Summary:
    """Statistics of every coordinate, and what is wrong with the chains. Prints as a table.

    Attributes
    ----------
    names
        One per coordinate, from the paths in the PyTree: `0.w[1,2]`.
    mean, sd
        Of all draws.
    mcse_mean, mcse_sd
        Their Monte Carlo standard errors (`mcse`).
    q5, q50, q95
        Quantiles.
    rhat
        `rank_rhat`; NaN for a single chain.
    ess_bulk, ess_tail
        Over all chains.
    num_chains, num_draws
        Shape of what was summarised.
    nan_chains
        Numbers of the chains that hold a NaN or an infinity.
    frozen_chains
        Numbers of the chains whose position never changed.
    frozen_parts
        Of chains whose position did change, the leaves of real numbers that never did although they
        do in other chains: pairs of a chain's number and a path.
    acceptance_rate
        Mean of each chain, or of each replica of each chain, where acceptance rates were given.
    divergences
        Number of divergent steps of each chain, where they were given.
    warnings
        Sentences in plain words; empty if nothing was found.
    """

    names: tuple[str, ...]
    mean: Float[np.ndarray, " coordinate"]
    sd: Float[np.ndarray, " coordinate"]
    mcse_mean: Float[np.ndarray, " coordinate"]
    mcse_sd: Float[np.ndarray, " coordinate"]
    q5: Float[np.ndarray, " coordinate"]
    q50: Float[np.ndarray, " coordinate"]
    q95: Float[np.ndarray, " coordinate"]
    rhat: Float[np.ndarray, " coordinate"]
    ess_bulk: Float[np.ndarray, " coordinate"]
    ess_tail: Float[np.ndarray, " coordinate"]
    num_chains: int
    num_draws: int
    nan_chains: tuple[int, ...]
    frozen_chains: tuple[int, ...]
    frozen_parts: tuple[tuple[int, str], ...]
    acceptance_rate: Float[np.ndarray, "chain *replica"] | None
    divergences: Int[np.ndarray, " chain"] | None
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        return self.text()

    def text(self, max_rows: int | None = 40) -> str:
        """Return the table; of more than `max_rows` rows, those of smallest bulk ESS."""
        count = len(self.names)
        rows = np.arange(count)
        if max_rows is not None and count > max_rows:
            # NaNs are the worst there is.
            worst = np.argsort(np.nan_to_num(self.ess_bulk, nan=-1), kind="stable")
            rows = np.sort(worst[:max_rows])
        head = ["", "mean", "sd", "mcse", "5%", "50%", "95%", "R-hat", "ESS bulk", "ESS tail"]
        body = [
            [self.names[i]]
            + [f"{column[i]:.4g}" for column in (self.mean, self.sd, self.mcse_mean)]
            + [f"{column[i]:.4g}" for column in (self.q5, self.q50, self.q95)]
            + [f"{self.rhat[i]:.3f}", f"{self.ess_bulk[i]:.0f}", f"{self.ess_tail[i]:.0f}"]
            for i in rows
        ]
        widths = [max(len(row[k]) for row in [head, *body]) for k in range(len(head))]
        lines = [
            "  ".join(
                [row[0].ljust(widths[0])]
                + [c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)]
            )
            for row in [head, *body]
        ]
        if len(rows) < count:
            lines.append(f"({count - len(rows)} coordinates with larger bulk ESS are not shown)")
        lines.append(f"{_number(self.num_chains, 'chain')} of {_number(self.num_draws, 'draw')}")
        rate = np.zeros(0) if self.acceptance_rate is None else self.acceptance_rate
        rate = rate[~np.isnan(rate)]  # a warning names the chains whose rate is NaN
        if rate.size:
            lines[-1] += f", acceptance {rate.mean():.1%} ({rate.min():.1%} to {rate.max():.1%})"
        if self.divergences is not None and self.divergences.any():
            lines[-1] += f", {_number(int(self.divergences.sum()), 'divergent step')}"
        lines += [f"WARNING: {sentence}" for sentence in self.warnings]
        return "\n".join(line.rstrip() for line in lines)


def summary(
    positions: PyTree,
    *,
    function: Callable[[PyTree], PyTree] | None = None,
    acceptance_rate: ArrayLike | None = None,
    log_density: ArrayLike | None = None,
    is_divergent: ArrayLike | None = None,
    energy_change: ArrayLike | None = None,
    names: Sequence[str] | None = None,
) -> Summary:
    """Summarise draws: estimates, Monte Carlo errors, R-hat, effective sample sizes, warnings.

    Parameters
    ----------
    positions
        PyTree with leaves (chain, draw, ...), at least four draws per chain.
    function
        Summarise this function of the position (predictions, say) instead of the position
        itself; see `evaluate`. Frozen chains are those whose *position* never changes.
    acceptance_rate
        Array (chain, draw), or (chain, draw, replica) of a population kernel (see `by_replica`);
        a warning names chains in which its mean is near 0 or 1, and replicas in which it is next
        to 0.
    log_density
        Array (chain, draw); becomes one more row. A warning tells of levels that the chains do
        not join: a stuck replica that swaps pass round, or separate modes. R-hat sees
        neither where all chains spend the same share of their draws there.
    is_divergent
        Array (chain, draw), `draws.infos.is_divergent` of our Metropolis kernels and of BlackJAX's
        Hamiltonian ones: steps whose proposal was no number, or whose energy error was too large.
        A warning counts them. Of `blackjax.mclmc`: `~draws.infos.nonans`.
    energy_change
        Array (chain, draw) of an *unadjusted* microcanonical kernel, `draws.infos.energy_change`: a
        warning says by how much its draws are off, as `energy_error_in_words`. `positions` must
        hold the whole position then, since its size is the number of dimensions.
    names
        One per coordinate, log density excepted, in place of the paths in the PyTree.

    Returns
    -------
    A `Summary`; `print` it. A coordinate that holds a NaN is NaN throughout, and the warnings
    name the chains and draws.

    Raises
    ------
    ValueError
        Leaves without chain and draw axes or with different ones, fewer than four draws, or
        not as many names as coordinates; float64 numbers far from zero that lose their spread in
        float32, without `jax_enable_x64`; inside `jit`, `vmap` or `grad`.

    Examples
    --------
    >>> import jax
    >>> draws = {"w": jax.random.normal(jax.random.key(0), (4, 1000, 2))}
    >>> table = summary(draws)
    >>> table.names, table.warnings
    (('w[0]', 'w[1]'), ())
    >>> print(table)
              mean  sd ... R-hat  ESS bulk  ESS tail
    w[0] ...
    w[1] ...
    4 chains of 1000 draws
    """
    check_outside("summary", "it makes a table on the host; call it outside", positions)
    chains, length = check_positions("summary", positions)
    positions = jax.tree.map(in_doubles, in_memory(positions))
    if function is not None:  # otherwise the positions are looked at below
        for path, leaf in jax.tree_util.tree_leaves_with_path(positions):
            check_rounding(f"positions{jax.tree_util.keystr(path)}", leaf)
    values = positions if function is None else evaluate(function, positions)
    all_names = _names(values, "x" if function is None else "f")
    if names is not None:
        names = as_names(names)
        if len(names) != len(all_names):
            raise ValueError(
                f"names needs one name per coordinate, {len(all_names)}, but has {len(names)}."
            )
        all_names = names
    if log_density is not None:
        check_rounding("log_density", in_doubles(log_density))
        log_density = _chain_draw("log_density", log_density, (chains, length))
        values = (values, log_density)
        all_names.append("log density")
    rates = None
    if acceptance_rate is not None:
        found = _chain_draw("acceptance_rate", acceptance_rate, (chains, length), num_more=1)
        given = np.asarray(found, np.float64)
        # The mean of numbers that are no rates would hide them.
        is_rate = ((given >= 0) & (given <= 1 + _ROUNDING)).all(axis=1)
        rates = np.where(is_rate, given.mean(axis=1), np.nan)

    divergences = None
    if is_divergent is not None:
        flags = _chain_draw("is_divergent", is_divergent, (chains, length))
        divergences = np.count_nonzero(np.asarray(flags), axis=1)

    sentences: tuple[str, ...] = ()
    told = divergences
    if energy_change is not None:
        change = _chain_draw("energy_change", energy_change, (chains, length))
        size = sum(math.prod(leaf.shape[2:]) for leaf in jax.tree.leaves(positions))
        whole = None if is_divergent is None else ~np.asarray(is_divergent, bool)
        sentences = energy_error_in_words(change, size, is_whole=whole)
        told = None  # these sentences count the steps that blew up

    columns = _columns(values)
    moves = movement(positions, values)
    nan_chains = tuple(int(c) for c in np.flatnonzero(moves.first_bad < length))
    frozen = tuple(int(c) for c in np.flatnonzero(moves.moves == 0) if c not in nan_chains)
    parts = _frozen_parts(positions, moves, {*nan_chains, *frozen})
    series = None if log_density is None else np.asarray(log_density)
    return Summary(
        names=tuple(all_names),
        **{name: column for name, column in columns.items() if name not in ("moves", "varies")},
        num_chains=chains,
        num_draws=length,
        nan_chains=nan_chains,
        frozen_chains=frozen,
        frozen_parts=parts,
        acceptance_rate=rates,
        divergences=divergences,
        warnings=warnings_in_words(
            all_names, columns, chains, length, moves, frozen, parts, rates, series, told
        )
        + sentences,
    )


def _frozen_parts(
    positions: PyTree, moves: Movement, told: Collection[int]
) -> tuple[tuple[int, str], ...]:
    """Return chains, but for those `told` of, and paths of leaves that other chains alone move."""
    found = []
    leaves = jax.tree_util.tree_leaves_with_path(positions)
    for (path, leaf), counts in zip(leaves, moves.moves_of_leaves, strict=True):
        # What is discrete may keep its value for long.
        if counts.any() and jnp.issubdtype(leaf.dtype, jnp.floating):
            name = jax.tree_util.keystr(path, simple=True, separator=".") or "x"
            found += [(int(c), name) for c in np.flatnonzero(counts == 0) if c not in told]
    return tuple(sorted(found))


def _columns(values: PyTree) -> dict[str, np.ndarray]:
    """Statistics of all leaves, each flattened and one after the other."""
    given = jax.tree.leaves(values)
    # Beside others, a leaf without numbers (the weights of no inputs, say) is no mistake.
    some = [leaf for leaf in given if leaf.size > 0] or given
    leaves = [check_draws("summary", leaf, min_draws=4) for leaf in some]
    flat = [leaf.reshape(*leaf.shape[:2], -1) for leaf in leaves]
    dtypes = [float_dtype(leaf.dtype) for leaf in flat]
    widest = max(dtypes, key=lambda dtype: jnp.finfo(dtype).bits)
    if len(flat) > 1 and sum(leaf.nbytes for leaf in flat) <= _COPY_BYTES:
        flat = [jnp.concatenate([leaf.astype(widest) for leaf in flat], axis=2)]
    parts = [per_coordinate(_statistics, leaf) for leaf in flat]
    return {
        name: np.concatenate([np.asarray(part[name], widest) for part in parts])
        for name in parts[0]
    }


def _statistics(x):
    mean, sd = pooled_moments(x)
    squares = ((x - mean) / sd) ** 2
    ordered = sorted_draws(x)
    halves = split_chains(x)
    # Side by side, so that ranks, R-hat and ESS are compiled once each.
    scores = jax.vmap(normal_scores)(jnp.stack([halves, fold(halves)]))
    rhat = larger_rhat(jax.vmap(split_rhat_of)(scores))
    low, high = tail_indicator(x, ordered, 0.05), tail_indicator(x, ordered, 0.95)
    series = jnp.stack([scores[0], low, high, halves, split_chains(squares)])
    bulk, low_tail, high_tail, plain, squared = jax.vmap(ess_of)(series)
    return {
        "mean": mean,
        "sd": sd,
        "mcse_mean": sd / jnp.sqrt(plain),
        "mcse_sd": mcse_of_sd(squares, sd, squared),
        "q5": quantile(ordered, 0.05),
        "q50": quantile(ordered, 0.5),
        "q95": quantile(ordered, 0.95),
        # The halves of a single chain do not tell whether chains agree.
        "rhat": rhat if x.shape[0] > 1 else jnp.full_like(rhat, jnp.nan),
        "ess_bulk": bulk,
        "ess_tail": jnp.fmin(low_tail, high_tail),
        "moves": jnp.sum(x[:, 1:] != x[:, :-1]).astype(x.dtype),
        "varies": (x != x[0, 0]).any().astype(x.dtype),
    }


def _names(values: PyTree, root: str) -> list[str]:
    """Name each coordinate: path in the tree, then indices in the leaf."""
    names = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(values):
        stem = jax.tree_util.keystr(path, simple=True, separator=".") or root
        shape = leaf.shape[2:]
        for index in np.ndindex(*shape) if math.prod(shape) else ():
            names.append(f"{stem}[{','.join(map(str, index))}]" if shape else stem)
    return names


def _chain_draw(name: str, value: Any, axes: tuple[int, int], num_more: int = 0) -> jax.Array:
    check_real(name, value)
    array = jnp.asarray(in_doubles(value))
    if array.shape[:2] != axes or array.ndim > 2 + num_more:
        more = ", or (chain, draw, replica)" if num_more else ""
        raise ValueError(
            f"{name} needs the shape (chain, draw) of the positions, {axes}{more}, but has "
            f"{array.shape}."
        )
    return array


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
