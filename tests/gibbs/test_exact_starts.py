"""Every move keeps an exact draw of the posterior an exact draw: alone, and all of them composed.

Weights, latents and labels come from the model, so that weights and latents are an exact draw of
the posterior of those labels; then some steps are taken at these labels. Mutants are found by
Geweke's tests of each move, and one here; a first layer that is not brought up to date after a move
by `test_scale_moves.py` and `test_noncentred_scales.py`, from the numbers themselves.
"""

import numpy as np
import pytest

from jaxbnn.gibbs import (
    IntermediateNoise,
    interweave,
    interwoven_gibbs,
    noncentred_scale_moves,
    redraw_noisy_units,
    scale_moves,
    turn_units,
)
from jaxbnn.gibbs.hidden_units import scalings
from jaxbnn.networks import mlp
from tests.gibbs.cases import ACTIVATIONS, MODELS, data
from tests.gibbs.test_scale_moves import mutated, off_by_one
from tests.gibbs.test_sweeps import functions_of, joint_of
from tests.gibbs.test_turns import inputs
from tests.gibbs.test_turns import model_of as regression_model
from tests.kit import Target, check_exact_start, for_mutants

TURNING = ("identity", "relu", "leaky_relu", "abs")


def probit(activation):
    return IntermediateNoise(mlp((2, 3, 3), activation), (0.3, 0.5, 0.8), 1.0, 0.7, "probit")


def can_turn(model):
    layers = model.network.layers
    return len(layers) == 3 and layers[-1].features == 1 and layers[1].function in TURNING


def everything(model, x, y):
    """All that a user may put together, the turns too where the model has them."""
    more = [turn_units(model, x, y)] if can_turn(model) else []
    return interwoven_gibbs(model, x, y, 0.6, 2, num_candidates=3, more_moves=more)


MOVES = {
    "interweave": lambda model, x, y: interweave(model, x, y, 0.6, 2),
    "scales": lambda model, x, y: scale_moves(model, x, warn=False),
    "noncentred scales": lambda model, x, y: noncentred_scale_moves(model, x, y),
    "redraws": lambda model, x, y: redraw_noisy_units(model, x, y, 3),
    "turns": turn_units,
    "everything": everything,
}


def checked(model, x, make, num_chains, steps=2):
    target = Target(
        joint_of(model, x),
        lambda position, y=None: model.log_density(position, x, y),
        functions_of(model, x),
    )
    return check_exact_start(
        lambda y: make(model, x, y), target, steps=steps, num_chains=num_chains
    )


def cases():
    """Each move with each activation that it can have, in regression and under a probit."""
    for activation in ACTIVATIONS:
        name = activation if isinstance(activation, str) else "stairs"
        for output, make in (("regression", regression_model), ("probit", probit)):
            model = make(activation)
            for move in MOVES:
                if move == "scales" and not scalings(model)[0]:
                    continue
                if move == "turns" and not can_turn(model):
                    continue
                yield pytest.param(model, move, id=f"{name}-{output}-{move.replace(' ', '_')}")


# So many chains find a sup-distance of .018.
@pytest.mark.long
@pytest.mark.filterwarnings("ignore:layer .* has no scale symmetry")
@pytest.mark.parametrize(("model", "move"), list(cases()))
def test_moves_keep_exact_draws(model, move):
    result = checked(model, inputs(2), MOVES[move], 200_000)
    assert result.passes, str(result)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:layer .* has no scale symmetry")
@pytest.mark.parametrize("name", ["deep", "conv", "deep conv", "pool first", "binary"])
def test_all_moves_of_deeper_models_keep_exact_draws(name):
    model, x = MODELS[name], data(name, 2, np.float32)
    result = checked(model, x, everything, 100_000)
    assert result.passes, str(result)


@for_mutants(20_000)
def test_a_wrong_law_of_the_scales_is_found(num_chains):
    def make(model, x, y):
        return mutated(off_by_one)(model, x, y, None, None)

    result = checked(regression_model("relu"), inputs(2), make, num_chains, steps=4)
    assert not result.passes, str(result)
