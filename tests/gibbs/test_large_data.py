"""Gibbs kernels refuse data that floats do not hold, and warn of those that they round."""

import warnings
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxbnn.gibbs import (
    IntermediateNoise,
    gibbs_sampler,
    interweave,
    interwoven_gibbs,
    noncentred_scale_moves,
    redraw_noisy_units,
    turn_units,
)
from jaxbnn.networks import mlp
from jaxbnn.thermalization import optimised_start, sample_annealed

pytestmark = pytest.mark.usefixtures("annotations_unchecked", "no_run")
MODEL = IntermediateNoise(mlp((2, 3, 1)), (0.1, 0.1, 1e-3))


def annealed(model, x, y):
    zero = jax.tree.map(lambda leaf: leaf[None], model.zero_position(np.ones((9, 2)), np.ones(9)))
    return sample_annealed(jax.random.key(0), model, x, y, zero, 1, num_warmup=1, progress=False)


def started(model, x, y):
    return optimised_start(
        jax.random.key(0), model, x, y, optimizer=optax.sgd(1e-9), num_updates=1, num_refits=1
    )


DOORS = {
    "gibbs_sampler": gibbs_sampler,
    "interweave": lambda model, x, y: interweave(model, x, y, 0.1),
    "interwoven_gibbs": lambda model, x, y: interwoven_gibbs(model, x, y, 0.1, 2),
    "noncentred_scale_moves": noncentred_scale_moves,
    "redraw_noisy_units": redraw_noisy_units,
    "turn_units": turn_units,
    "sample_annealed": annealed,
    "optimised_start": started,
}


@pytest.fixture
def no_run(monkeypatch):
    """What is said of data is said before any work, which is left out here."""
    annealing = import_module("jaxbnn.thermalization.annealing")
    monkeypatch.setattr(annealing, "sample", lambda *arguments, **options: None)


@pytest.fixture
def data(rng):
    return rng.normal(size=(9, 2)), rng.normal(size=9)


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_numbers_beyond_the_floats_that_jax_holds_are_refused(door, data):
    x, y = data
    with pytest.raises(ValueError, match=r"^x, as float32, holds -?inf at .*; give it in smaller"):
        door(MODEL, x * 1e39, y)
    with pytest.raises(ValueError, match=r"^y, as float32, holds -?inf at .*; give it in smaller"):
        door(MODEL, x, y * 1e39)


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
def test_rounded_data_are_told(door, data):
    x, y = data
    with pytest.warns(UserWarning, match=r"^targets up to 1e\+06 with noise of scale 0.0316 are"):
        door(MODEL, x, y + 1e6)
    with pytest.warns(UserWarning, match=r"^x\[:, 0\], of numbers up to 1e\+08 .* is rounded to"):
        door(MODEL, x + 1e8, y)


def test_the_noise_that_counts_is_that_of_the_targets(data):
    x, y = data
    with pytest.warns(UserWarning, match="noise of scale 0.0316"):
        gibbs_sampler(MODEL, x, y + 1e5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gibbs_sampler(IntermediateNoise(mlp((2, 3, 1)), (1e-3, 1e-3, 1.0)), x, y + 1e5)


def test_nothing_is_told_of_labels_of_wide_floats_and_of_what_is_traced(data):
    x, y = data
    probit = IntermediateNoise(mlp((2, 3, 2)), 0.1, output="probit")

    @jax.jit
    def scale(noise_variance):
        model = IntermediateNoise(mlp((2, 3, 1)), noise_variance)
        gibbs_sampler(model, x, y + 1e6)
        return noise_variance

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gibbs_sampler(MODEL, x, y)
        gibbs_sampler(probit, x, np.full(9, 1))
        scale(jnp.float32(1e-3))
        with jax.enable_x64(True):
            gibbs_sampler(MODEL, x + 1e8, y + 1e6)


def test_inputs_of_a_probit_are_told_as_well(data):
    x, _ = data
    probit = IntermediateNoise(mlp((2, 3, 2)), 0.1, output="probit")
    with pytest.warns(UserWarning, match="is rounded to float32"):
        gibbs_sampler(probit, x + 1e8, np.full(9, 1))


def test_with_x_of_32_and_y_of_64_bits_rounding_is_that_of_32(data):
    x, y = data
    with jax.enable_x64(True), pytest.warns(UserWarning, match="too much for float32"):
        gibbs_sampler(MODEL, x.astype(np.float32), y + 1e6)


def test_nothing_is_simulated_of_inputs_that_are_none():
    """The largest of the logits, all NaN, is the first."""
    probit = IntermediateNoise(mlp((2, 3, 2)), 0.1, output="probit")
    params = probit.sample_prior(jax.random.key(0))
    for worst in (np.nan, 1e39):
        x = np.ones((4, 2))
        x[2, 1] = worst
        with pytest.raises(ValueError, match=r"^x"):
            probit.simulate(jax.random.key(1), params, x)
        with pytest.raises(ValueError, match=r"^x"):
            probit.random_position(jax.random.key(1), x, np.zeros(4, int))
