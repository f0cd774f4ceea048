"""What microcanonical chains are given by mistake; each call ends in one sentence."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from hypothesis import strategies as st

from jaxbnn import diagnostics, ensembles, sampling
from jaxbnn.networks import mlp
from tests.kit.hostile import Call
from tests.kit.hostile_runner import KEY, STARTS, _posterior


def _recipe(posterior: Any = None, positions: Any = None, *, key: Any = KEY, **options: Any):
    target = _posterior() if posterior is None else posterior
    starts = _posterior().sample_prior(KEY, (2,)) if positions is None else positions
    options = {"num_tuning": 100, "progress": False} | options
    return ensembles.sample_ensemble(key, target, starts, 3, **options)


def _tuned(**changes: Any):
    starts = _posterior().sample_prior(KEY, (2,))
    parameters = ensembles.microcanonical_parameters(starts) | changes
    return sampling.sample(
        KEY, ensembles.microcanonical, starts, 2, data=_posterior(), num_warmup=100, progress=False,
        parameters={name: value for name, value in parameters.items() if value is not None},
        adapt=ensembles.microcanonical_adaptation(100),
    )  # fmt: skip


CALLS = {
    "a network": lambda: _recipe(mlp((2, 1))),
    "an int for a key": lambda: _recipe(key=0),
    "within jit": lambda: jax.jit(lambda key: _recipe(key=key).draws.positions)(KEY),
    "a kernel of no name": lambda: _recipe(kernel="nuts"),
    "a kernel that is no name": lambda: _recipe(kernel=ensembles.adjusted_microcanonical),
    "too little tuning": lambda: _recipe(num_tuning=20),
    "half a step": lambda: _recipe(most_steps=0.5),
    "no energy error": lambda: _recipe(energy_error=0.0),
    "NaN of an energy error": lambda: _recipe(start_energy_error=np.nan),
    "no trajectory": lambda: _recipe(trajectory_steps=0),
    "no warm-up": lambda: _recipe(num_warmup=0),
    "positions of NaN": lambda: _recipe(
        positions=jax.tree.map(lambda w: w * np.nan, _posterior().sample_prior(KEY, (2,)))
    ),
    "a step size in words": lambda: ensembles.microcanonical_parameters(STARTS, step_size="a"),
    "a length of zero": lambda: ensembles.microcanonical_parameters(STARTS, decoherence_length=0),
    "one dimension": lambda: ensembles.microcanonical_parameters(STARTS[:, :1]),
    "no length": lambda: _tuned(decoherence_length=None),
    "a dense matrix": lambda: _tuned(inverse_mass_matrix=np.ones((2, 3, 3), np.float32)),
    "whole steps": lambda: _tuned(step_size=np.ones(2, int)),
    "a matrix too small": lambda: _tuned(inverse_mass_matrix=np.ones((2, 2), np.float32)),
    "a target acceptance of one": lambda: ensembles.microcanonical_adaptation(
        100, target_acceptance_rate=1.0
    ),
    "words of one chain": lambda: diagnostics.energy_error_in_words(STARTS[0], 2),
    "words of words": lambda: diagnostics.energy_error_in_words([["a"]], 2),
    "words of no dimensions": lambda: diagnostics.energy_error_in_words(STARTS, 0),
    "no matrix, adjusted": lambda: ensembles.adjusted_microcanonical(
        {"step_size": np.ones(()), "decoherence_length": np.ones(())}, _posterior()
    ),
    "directions without factors": lambda: _adjusted(directions=np.ones((1, 2))).init(STARTS[0]),
    "directions of another size": lambda: _adjusted(
        directions=np.ones((1, 3)), factors=np.ones(1)
    ).init(STARTS[0]),
    "energy of a kernel without": lambda: sampling.sample(
        KEY, _adjusted(), STARTS, 2, reduce={"e": ensembles.energy_errors()}, progress=False
    ),
}


def _adjusted(**changes: Any):
    one = jax.tree.map(lambda x: x[0], ensembles.microcanonical_parameters(STARTS)) | changes
    target = type("Target", (), {"log_density": staticmethod(lambda x: -(x**2).sum() / 2)})
    return ensembles.adjusted_microcanonical(one, target)


def _family(calls: dict[str, Callable]) -> st.SearchStrategy:
    def make(name):
        kind = "microcanonical chains of what is none"
        return 0, Call(f"ensembles: {name}", kind, calls[name], None, "nothing")

    return st.sampled_from(sorted(calls)).map(make)


FAMILIES = {"runner, microcanonical chains": _family(CALLS)}
