"""Starts by optimisation: several networks trained from independent draws, as one program.

    loss(theta) = -(1/B) sum_{i in batch} log p(y_i | x_i, theta) - log p(theta) / N,

B the rows of a batch and N those that a chain trains on: over batches its mean is -1/N times the
log posterior given these N rows. The remaining rows say when a chain stops, and which of its
positions is kept.
"""

import os
import time
import warnings
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Bool, Float, Int, PRNGKeyArray, PyTree

from jaxbnn.ensembles.arguments import Arguments, checked_arguments
from jaxbnn.ensembles.epochs import DIVERGED, RUNNING, Chain, Curves, begin, members_of, train
from jaxbnn.ensembles.fingerprint import fingerprint
from jaxbnn.ensembles.initial import check_starts, initial_positions
from jaxbnn.numerics.arguments import check_progress
from jaxbnn.numerics.outside import reading_anew
from jaxbnn.sampling import BadCheckpoint
from jaxbnn.sampling.devices.placement import placement
from jaxbnn.sampling.keys import chain_keys
from jaxbnn.sampling.order import ordered
from jaxbnn.sampling.progress import Progress, Reporter, choose_reporter
from jaxbnn.sampling.store.training import Forgotten, Stored, stored_training
from jaxbnn.targets import Posterior

# Between two visits to the host: for progress, and for what a checkpoint may lose.
_SECONDS_OF_A_CHUNK = 2.0


class OptimisedStarts(NamedTuple):
    """What `optimised_starts` returns.

    Attributes
    ----------
    positions
        Of each chain that with the smallest validation loss, leaves (chain, ...): starts for
        `sample`. As it is, the result is a deep ensemble for `predict` and `scores`.
    training
        (chain, epoch): the mean over the updates of an epoch of the loss in nats a row, prior
        included; NaN once the chain has stopped.
    validation
        (chain, epoch): mean negative log likelihood of the rows held out, in nats a row, after
        each epoch; infinite where it, or the prior's density, is not a number; NaN once the chain
        has stopped.
    best_epoch
        (chain,): the epoch, from 1, after which a chain was where `positions` has it; 0: it never
        got better than where it began.
    num_epochs
        (chain,): epochs made before the chain stopped.
    diverged
        (chain,): whether the loss or the position became infinite or NaN in the last of them.
    held_out
        (chain, row): the rows that the chain did not train on.
    """

    positions: PyTree
    training: Float[np.ndarray, "chain epoch"]
    validation: Float[np.ndarray, "chain epoch"]
    best_epoch: Int[np.ndarray, " chain"]
    num_epochs: Int[np.ndarray, " chain"]
    diverged: Bool[np.ndarray, " chain"]
    held_out: Int[np.ndarray, "chain row"]

    def as_draws(self) -> PyTree:
        """Return the ensemble as draws, one a chain: leaves (chain, 1, ...)."""
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[:, None], self.positions)


class TrainingDiverged(ValueError):
    """Every chain's loss or position became infinite or NaN.

    Examples
    --------
    >>> import jaxbnn
    >>> network = jaxbnn.mlp((1, 8, 1))
    >>> x = np.linspace(-1, 1, 60)[:, None]
    >>> posterior = jaxbnn.Posterior(
    ...     network, jaxbnn.normal_prior(network), jaxbnn.targets.Gaussian(0.1), x, x[:, 0]
    ... )
    >>> try:
    ...     optimised_starts(
    ...         jax.random.key(0), posterior, 2, optimizer=optax.sgd(1e9), progress=False
    ...     )
    ... except TrainingDiverged as error:
    ...     print(str(error)[:17])
    training diverged
    """


def optimised_starts(
    key: PRNGKeyArray,
    posterior: Posterior,
    num_chains: int,
    *,
    positions: PyTree = None,
    optimizer: optax.GradientTransformation | None = None,
    batch_size: int | None = None,
    validation: float = 0.1,
    patience: int = 30,
    max_epochs: int = 1000,
    checkpoint: str | os.PathLike | None = None,
    mesh: Mesh | None = None,
    progress: bool | Reporter = True,
) -> OptimisedStarts:
    """Train `num_chains` networks by minibatches, and stop each when its rows held out say so.

    Maximises the log density of the posterior given a chain's training rows, over all that a
    position holds: weights, what the likelihood learns, precisions of a hierarchical prior. Each
    chain holds out rows of its own, so that each row is trained on by most chains, and keeps the
    position that was best on them.

    Parameters
    ----------
    key
        The key of the whole; the key of chain c is folded from (key, c).
    posterior
        Of a `Network` or any function, with any likelihood.
    num_chains
        How many networks.
    positions
        Where training begins, stacked: leaves (chain, ...). None: what the likelihood learns is at
        its prior's mean, and all else drawn from the prior but the weights of a `Network`, which
        `jaxbnn.networks.init` draws, N(0, 1 / fan_in) with biases 0; weights of other functions
        (arrays of two or more axes, inputs before outputs) are the prior's, shrunk to that size.
        From a draw of N(0, 1) on every weight a deep network of ReLUs begins with outputs of many
        times the targets.
    optimizer
        Of Optax; it minimises nats a row. None: `optax.adam(0.005)`. The prior is the weight
        decay: that of `optax.adamw` comes on top. Give the same object again and nothing is
        compiled again.
    batch_size
        Rows an update, of one chain. None: a thirty-second of the training rows, from 32 to 512 (or
        all where they are fewer).
    validation
        The part of the rows that each chain holds out, between 0 and 1.
    patience
        A chain stops after so many epochs without a smaller validation loss.
    max_epochs
        Epochs of each chain, at most.
    checkpoint
        A folder: every few seconds the state of training is written there whole, and a call with
        the same arguments, or with more epochs, goes on from there and gives the same numbers bit
        for bit on the same machine and mesh. A finished training is read back.
    mesh
        Devices to train on, as in `sample`: chains are spread over its axis "chain".
    progress
        True writes to standard error; a function receives `Progress`, which counts updates; False
        is silent.

    Returns
    -------
    `OptimisedStarts`. A chain that diverges stops there and keeps its best position from before; a
    warning names the chain and the epoch, and the others are not touched.

    Raises
    ------
    ValueError
        Fewer training rows than a batch; a held-out part of no row, or of all rows; patience or
        other numbers that are not positive; positions that are not the posterior's; a checkpoint
        of another training (`BadCheckpoint`); if every chain diverges (`TrainingDiverged`).
    TypeError
        What is no `Posterior` or no optimiser of Optax.
    OSError
        `CheckpointNotWritten`: a folder that cannot be written to.

    Notes
    -----
    One program trains all chains, and those that have stopped wait for the last one. The numbers of
    a chain depend on how many others there are to rounding only, since matrix products of several
    chains are computed together; training amplifies rounding. All else is the chain's own: its key,
    start, rows and order of batches.

    Deep ensembles: Lakshminarayanan, Pritzel, Blundell (2017). As starts of chains: Sommer et al.
    (2025), whose networks are all trained on the same rows.

    Examples
    --------
    >>> import jaxbnn
    >>> network = jaxbnn.mlp((1, 8, 2))
    >>> x = np.linspace(-1, 1, 60)[:, None]
    >>> likelihood = jaxbnn.targets.SoftplusScaleGaussian()
    >>> prior = jaxbnn.normal_prior(network)
    >>> posterior = jaxbnn.Posterior(network, prior, likelihood, x, np.sin(3 * x[:, 0]))
    >>> starts = optimised_starts(jax.random.key(0), posterior, 4, max_epochs=40, progress=False)
    >>> starts.positions[0]["w"].shape, starts.validation.shape
    ((4, 1, 8), (4, 40))
    >>> jaxbnn.predict(starts, x[:5], posterior).mean.shape
    (5,)
    """
    check_progress(progress)
    asked = checked_arguments(
        key, posterior, num_chains, optimizer, batch_size, validation, patience,
        max_epochs, checkpoint, mesh,
    )  # fmt: skip
    members = members_of(chain_keys(key, num_chains), len(posterior.x), asked.num_held_out)
    if positions is None:
        positions = initial_positions(members.start_key, posterior)
    else:
        positions = check_starts(positions, posterior, num_chains)
    data = ordered(posterior)
    with reading_anew([begin, train], posterior, asked.plan):
        chains = begin(members, data, positions, plan=asked.plan)
    report = choose_reporter(progress)
    place = placement(mesh, asked.num_chains, data)
    spread = place.by_chain(members), place.data(data)

    def epochs(chains: Chain, first: int, count: int) -> tuple[Chain, Curves, int]:
        numbers = (jnp.asarray(n, jnp.int32) for n in (first, first + count, patience))
        chains = place.by_chain(chains)
        with jax.debug_nans(False):  # NaN stands for the epochs of a chain that has stopped
            chains, curves, done = train(*spread, chains, *numbers, plan=asked.plan)
        return chains, jax.tree.map(lambda c: np.asarray(c)[: int(done) - first], curves), int(done)

    with stored_training(checkpoint, lambda: fingerprint(asked, (members, data), chains)) as store:
        chains, curves = _go_on(store, epochs, asked, report, chains)
    result = OptimisedStarts(
        chains.best,
        np.asarray(curves.training).T,
        np.asarray(curves.validation).T,
        np.asarray(chains.best_epoch),
        np.asarray(chains.num_epochs),
        np.asarray(chains.status) == DIVERGED,
        np.asarray(members.held_out),
    )
    _tell_of_divergence(result)
    return result


def _go_on(
    store: Stored | Forgotten,
    epochs: Callable,
    asked: Arguments,
    report: Reporter | None,
    chains: Chain,
) -> tuple[Chain, Curves]:
    """Train from where the store is, or from these chains, a chunk at a time, to the end."""
    (chains, curves), done = store.restored((chains, _no_curves(chains)))
    if done > asked.max_epochs:
        raise BadCheckpoint(
            f"the checkpoint holds {done} epochs, but max_epochs is {asked.max_epochs}; ask for as "
            "many or more."
        )
    begun, count, began = done, 1, time.perf_counter()
    while done < asked.max_epochs and (np.asarray(chains.status) == RUNNING).any():
        start, first = time.perf_counter(), done
        count = min(count, asked.plan.capacity, asked.max_epochs - done)
        chains, new, done = epochs(chains, first, count)
        curves = jax.tree.map(lambda old, part: np.concatenate([old, part]), curves, new)
        store.publish((chains, curves), done)
        is_last = done == asked.max_epochs or not (np.asarray(chains.status) == RUNNING).any()
        if report is not None:
            total = done if is_last else asked.max_epochs
            report(_progress(asked, done, total, done - begun, time.perf_counter() - began))
        # Chunks grow until they take a second or two; how long they are changes no number.
        if time.perf_counter() - start < _SECONDS_OF_A_CHUNK / 2:
            count *= 2
    return chains, curves


def _no_curves(chains: Chain) -> Curves:
    empty = jnp.zeros((0, *chains.best_loss.shape), chains.best_loss.dtype)
    return Curves(empty, empty)


def _progress(asked: Arguments, done: int, total: int, made: int, seconds: float) -> Progress:
    batches = asked.plan.num_updates
    rate = made / max(seconds, 1e-9)
    return Progress(
        "training",
        done * batches,
        total * batches,
        rate * batches * asked.num_chains,
        (total - done) / max(rate, 1e-9),
        None,
    )


def _tell_of_divergence(result: OptimisedStarts) -> None:
    """Warn of chains that diverged, or raise where all did."""
    lost = np.flatnonzero(result.diverged)
    if not len(lost):
        return
    named = ", ".join(f"chain {c} in epoch {result.num_epochs[c]}" for c in lost[:5])
    named += f" and {len(lost) - 5} more" if len(lost) > 5 else ""
    if len(lost) == len(result.diverged):
        raise TrainingDiverged(
            f"training diverged: {named}; give an optimiser with a smaller step, such as "
            "optax.adam(1e-4), or clip gradients by optax.chain(optax.clip_by_global_norm(1.0), "
            "...)."
        )
    warnings.warn(
        f"training diverged: {named}; each keeps its best position from before, so leave it out or "
        "give an optimiser with a smaller step.",
        stacklevel=3,
    )
