"""What a training of starts was called with: only the same may go on from a checkpoint."""

import hashlib

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from jaxbnn.ensembles.arguments import Arguments
from jaxbnn.ensembles.epochs import Chain, train
from jaxbnn.sampling.store.fingerprint import digest, to_numpy


def fingerprint(asked: Arguments, data: tuple, chains: Chain) -> dict[str, str]:
    """Return one text a part; the training's length is no part of it."""
    members, posterior = data
    numbers = [jnp.zeros((), jnp.int32)] * 3
    text = train.lower(*data, chains, *numbers, plan=asked.plan).as_text()
    first = _first_state(chains.optimizer_state)
    text += "".join(first)
    return {
        "num_chains": f"{asked.num_chains}",
        "key": digest(members.order_key),
        "set of positions": digest(chains.position),
        "posterior or data set": digest(posterior),
        "validation": f"{asked.num_held_out}",
        "batch_size": f"{asked.plan.batch_size}",
        "patience": f"{asked.patience}",
        "program (network, likelihood or optimiser)": hashlib.sha256(text.encode()).hexdigest(),
    } | first


def _first_state(state: PyTree) -> dict[str, str]:
    """Return the part of an optimiser's first state, in which settings stand that no program shows.

    None where all of it is zero, as most optimisers' is: files from before there was this part lack
    it, and go on. Its name is beside the program's text, so that those with it are other programs.
    """
    if not any(np.any(to_numpy(leaf)) for leaf in jax.tree.leaves(state)):
        return {}
    return {"first state of the optimiser": digest(state)}
