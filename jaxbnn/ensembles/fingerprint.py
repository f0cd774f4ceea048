"""What a training of starts was called with: only the same may go on from a checkpoint."""

import hashlib

import jax.numpy as jnp

from jaxbnn.ensembles.arguments import Arguments
from jaxbnn.ensembles.epochs import Chain, train
from jaxbnn.sampling.store.fingerprint import digest


def fingerprint(asked: Arguments, data: tuple, chains: Chain) -> dict[str, str]:
    """Return one text a part; the training's length is no part of it."""
    members, posterior = data
    numbers = [jnp.zeros((), jnp.int32)] * 3
    text = train.lower(*data, chains, *numbers, plan=asked.plan).as_text()
    return {
        "num_chains": f"{asked.num_chains}",
        "key": digest(members.order_key),
        "set of positions": digest(chains.position),
        "posterior or data set": digest(posterior),
        "validation": f"{asked.num_held_out}",
        "batch_size": f"{asked.plan.batch_size}",
        "patience": f"{asked.patience}",
        "program (network, likelihood or optimiser)": hashlib.sha256(text.encode()).hexdigest(),
    }
