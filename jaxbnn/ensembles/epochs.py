"""The compiled part of training: epochs of all chains in one program.

Each chain has rows of its own held out, and visits the others once an epoch in a new order. A
chain that has stopped stays as it is, bit for bit, while others go on. Keys are counter based
(chain, then epoch), and the number of epochs is an argument: how training is cut into calls
changes nothing.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree, Shaped

from jaxbnn.sampling.order import restored
from jaxbnn.targets import Posterior

RUNNING, STOPPED, DIVERGED = 0, 1, 2
Scalar = Float[Array, ""]


class Plan(NamedTuple):
    """What is static in the program: updates take `batch_size` of a chain's `num_trained` rows.

    `capacity` is the most epochs of one call.
    """

    optimizer: optax.GradientTransformation
    num_trained: int
    batch_size: int
    capacity: int

    @property
    def num_updates(self) -> int:
        """Of an epoch."""
        return self.num_trained // self.batch_size


class Chain(NamedTuple):
    """One network in training.

    Attributes
    ----------
    position, optimizer_state
        After the last epoch that was finite.
    best, best_loss, best_epoch
        The position of the smallest loss on the rows held out, that loss in nats a row, and after
        which epoch it was; 0: the start.
    num_epochs
        Epochs made, the one that diverged among them.
    status
        RUNNING, STOPPED or DIVERGED.
    """

    position: PyTree
    optimizer_state: PyTree
    best: PyTree
    best_loss: Scalar
    best_epoch: Int[Array, ""]
    num_epochs: Int[Array, ""]
    status: Int[Array, ""]


class Members(NamedTuple):
    """What each chain has of its own, leaves (chain, ...): keys and rows.

    Attributes
    ----------
    start_key, order_key
        Of the position that training begins at, and of the order of batches.
    trained, held_out
        The numbers of the rows that the chain trains on, and of those that it holds out.
    """

    start_key: PRNGKeyArray
    order_key: PRNGKeyArray
    trained: Int[Array, "..."]
    held_out: Int[Array, "..."]


class Curves(NamedTuple):
    """Losses in nats a row, by epoch; NaN where a chain had stopped."""

    training: Float[Array, "..."]
    validation: Float[Array, "..."]


def minibatch_loss(
    posterior: Posterior,
    position: PyTree,
    x: Shaped[Array, "batch ..."],
    y: Shaped[Array, "batch ..."],
    num_rows: int,
) -> Scalar:
    """Return -(num_rows / batch * log likelihood of the batch + log prior) / num_rows.

    Over random batches its mean is -log density / num_rows of the posterior given all num_rows.
    """
    batch = posterior.with_data(x, y)
    log_prior = batch.log_prior(position)
    return -jnp.mean(batch.log_likelihood(position)) - log_prior / num_rows


@functools.partial(jax.jit, static_argnums=(1, 2))
def members_of(
    keys: Key[Array, " chain"] | Shaped[Array, "chain words"], num_rows: int, num_held_out: int
) -> Members:
    """Return keys and rows of each chain, by its own key."""

    def one(chain_key):
        start_key, rows_key, order_key = jax.random.split(chain_key, 3)
        order = _random_order(rows_key, num_rows)
        return Members(start_key, order_key, order[num_held_out:], order[:num_held_out])

    return jax.vmap(one)(keys)


def batches_of(
    order_key: PRNGKeyArray, epoch: Int[Array, ""], plan: Plan
) -> Int[Array, "batches batch_size"]:
    """Return which of a chain's training rows each update of an epoch sees.

    What is no whole batch is left out, other rows in each epoch.
    """
    num_batches = plan.num_updates
    if num_batches == 1 and plan.batch_size == plan.num_trained:
        return jnp.arange(plan.num_trained)[None]
    order = _random_order(jax.random.fold_in(order_key, epoch), plan.num_trained)
    return order[: num_batches * plan.batch_size].reshape(num_batches, plan.batch_size)


@functools.partial(jax.jit, static_argnames="plan")
def begin(members: Members, posterior: PyTree, positions: PyTree, *, plan: Plan) -> Chain:
    """Return all chains before the first epoch; `positions` have leaves (chain, ...)."""
    posterior = restored(posterior)

    def one(member, position):
        loss = _validation_loss(posterior, position, member.held_out)
        zero = jnp.zeros((), jnp.int32)
        state = plan.optimizer.init(position)
        return Chain(position, state, position, loss, zero, zero, _status(RUNNING))

    return jax.vmap(one)(members, positions)


@functools.partial(jax.jit, static_argnames="plan")
def train(
    members: Members,
    posterior: PyTree,
    chains: Chain,
    first: Int[Array, ""],
    last: Int[Array, ""],
    patience: Int[Array, ""],
    *,
    plan: Plan,
) -> tuple[Chain, Curves, Int[Array, ""]]:
    """Make the epochs after `first` up to `last`, or until every chain has stopped.

    Returns the chains, curves (capacity, chain) of which the first are filled, and the number of
    epochs made at the end.
    """
    posterior = restored(posterior)
    empty = jnp.full((plan.capacity, *chains.best_loss.shape), jnp.nan, chains.best_loss.dtype)

    def goes_on(carry):
        chains, _, done = carry
        return (done < last) & jnp.any(chains.status == RUNNING)

    def epoch(carry):
        chains, curves, done = carry
        step = functools.partial(
            _epoch_of_chain, posterior=posterior, number=done + 1, patience=patience, plan=plan
        )
        chains, losses = jax.vmap(step)(members, chains)
        curves = jax.tree.map(lambda all_, new: all_.at[done - first].set(new), curves, losses)
        return chains, curves, done + 1

    return jax.lax.while_loop(goes_on, epoch, (chains, Curves(empty, empty), first))


def _epoch_of_chain(
    member: Members,
    chain: Chain,
    *,
    posterior: Posterior,
    number: Int[Array, ""],
    patience: Int[Array, ""],
    plan: Plan,
) -> tuple[Chain, Curves]:
    def update(carry, batch):
        position, state = carry
        seen = member.trained[batch]
        loss, slope = jax.value_and_grad(minibatch_loss, argnums=1)(
            posterior, position, posterior.x[seen], posterior.y[seen], plan.num_trained
        )
        changes, state = plan.optimizer.update(slope, state, position)
        return (optax.apply_updates(position, changes), state), loss

    batches = batches_of(member.order_key, number, plan)
    begun = (chain.position, chain.optimizer_state)
    (position, state), losses = jax.lax.scan(update, begun, batches)
    training = jnp.mean(losses)
    validation = _validation_loss(posterior, position, member.held_out)
    is_finite = jnp.isfinite(training) & _all_finite(position)
    # What follows is of a chain that is running; `_kept` has the others as they were.
    is_better = is_finite & (validation < chain.best_loss)
    best_epoch = jnp.where(is_better, number, chain.best_epoch)
    status = jnp.where(number - best_epoch >= patience, _status(STOPPED), _status(RUNNING))
    after = Chain(
        _chosen(is_finite, position, chain.position),
        _chosen(is_finite, state, chain.optimizer_state),
        _chosen(is_better, position, chain.best),
        jnp.where(is_better, validation, chain.best_loss),
        best_epoch,
        number,
        jnp.where(is_finite, status, _status(DIVERGED)),
    )
    is_running = chain.status == RUNNING
    missing = jnp.full_like(validation, jnp.nan)
    losses = Curves(training, validation)
    return _chosen(is_running, after, chain), _chosen(is_running, losses, Curves(missing, missing))


def _validation_loss(posterior: Posterior, position: PyTree, rows: Int[Array, " rows"]) -> Scalar:
    """Return the mean negative log likelihood of rows; infinite where the prior has no density."""
    part = posterior.with_data(posterior.x[rows], posterior.y[rows])
    loss = -jnp.mean(part.log_likelihood(position))
    is_known = jnp.isfinite(loss) & jnp.isfinite(part.log_prior(position))
    return jnp.where(is_known, loss, jnp.inf)


def _status(number: int) -> Int[Array, ""]:
    return jnp.asarray(number, jnp.int32)


def _random_order(key: PRNGKeyArray, num_rows: int) -> Int[Array, " num_rows"]:
    # Ties of 32 random bits are too few to matter, and a draw less takes a second off compilation
    # beside `jax.random.permutation`.
    return jnp.argsort(jax.random.bits(key, (num_rows,)))


def _all_finite(tree: PyTree) -> Bool[Array, ""]:
    leaves = [jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]
    return functools.reduce(jnp.logical_and, leaves, jnp.ones((), bool))


def _chosen(is_new: Bool[Array, ""], new: PyTree, old: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(is_new, a, b), new, old)
