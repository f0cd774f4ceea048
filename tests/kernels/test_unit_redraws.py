"""Redrawing a unit leaves the posterior alone, draws from the prior, and wakes dead units up."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from jaxbnn.kernels import unit_redraws
from jaxbnn.kernels.unit_redraws import redraw_units
from jaxbnn.networks import Activation, Conv, Dense, Flatten, Network, init, mlp
from jaxbnn.networks.symmetries import hidden_units
from jaxbnn.targets import Gaussian, Posterior, expand_prior
from tests.kit import check_exact_start, posterior_target, sizes_with_mutants

NETWORK = mlp((1, 2, 1), "sigmoid")
# Not centred, and the incoming weights wider than the rest: a wrong prior is seen.
PRIOR = (
    {"w": dist.Normal(0.5, 2.0), "b": dist.Normal(-1.0, 1.5)},
    (),
    {"w": dist.Normal(0.3, 1.0), "b": dist.Normal(0.0, 1.0)},
)


@sizes_with_mutants(50_000)
def test_posterior_is_invariant_and_mutants_are_caught(num_chains, with_mutants, monkeypatch):
    x = jnp.array([[-1.0], [0.5], [2.0]])
    prior = expand_prior(PRIOR, NETWORK)
    target = posterior_target(
        lambda y: Posterior(NETWORK, prior, Gaussian(0.4), x, y), x, jnp.zeros((3, 1))
    )

    def check():
        def make_kernel(data):
            log_likelihood = Posterior(NETWORK, prior, Gaussian(0.4), x, data).log_likelihood
            return redraw_units(NETWORK, prior, log_likelihood)

        return check_exact_start(make_kernel, target, steps=2, num_chains=num_chains)

    result = check()
    assert result.passes, str(result)
    if not with_mutants:
        return
    draw = unit_redraws.sample_prior
    with monkeypatch.context() as mutant:  # proposals that are not from the prior
        mutant.setattr(
            unit_redraws,
            "sample_prior",
            lambda *a: jax.tree.map(lambda leaf: 1.3 * leaf, draw(*a)),
        )
        assert not check().passes
    with monkeypatch.context() as mutant:  # always accepted
        mutant.setattr(unit_redraws, "sum_of_differences", lambda a, b: jnp.zeros(()))
        assert not check().passes


def test_a_flat_likelihood_gives_the_prior_of_the_incoming_weights_alone():
    network = Network(
        (Conv(2, (2, 2)), Activation("relu"), Flatten(), Dense(3), Activation("tanh"), Dense(1)),
        (3, 3, 1),
    )
    kernel = redraw_units(network, dist.Normal(5.0, 0.1), lambda params: jnp.zeros(()))
    params = init(jax.random.key(0), network)
    state, info = jax.jit(kernel.step)(jax.random.key(1), kernel.init(params))
    assert info.acceptance_rate == 1
    touched = {axis.leaf for units in hidden_units(network) for axis in units.incoming}
    for index, (old, new) in enumerate(
        zip(jax.tree.leaves(params), jax.tree.leaves(state.position), strict=True)
    ):
        if index in touched:
            np.testing.assert_allclose(new, 5.0, atol=0.7)
        else:
            np.testing.assert_array_equal(new, old)
    assert len(touched) == 4


def test_units_are_judged_one_by_one():
    """With a likelihood that forbids one unit to change, the other two still do."""
    network = mlp((2, 3, 1), "sigmoid")
    params = init(jax.random.key(0), network)
    held = params[0]["w"][:, 1]

    def log_likelihood(p):
        return jnp.where(jnp.all(p[0]["w"][:, 1] == held), 0.0, jnp.array([-jnp.inf, 1.0]))

    kernel = redraw_units(network, dist.Normal(0.0, 1.0), log_likelihood)
    state, info = jax.jit(kernel.step)(jax.random.key(1), kernel.init(params))
    changed = np.asarray(state.position[0]["w"] != params[0]["w"])
    np.testing.assert_array_equal(changed, [[True, False, True]] * 2)
    np.testing.assert_allclose(info.acceptance_rate, 2 / 3, rtol=1e-6)
    assert bool(info.is_accepted)


def test_bad_input_gets_one_sentence():
    with pytest.raises(ValueError, match="needs hidden units"):
        redraw_units(mlp((2, 1)), dist.Normal(0.0, 1.0), jnp.sum)
    joint = dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2))
    prior = ({"w": joint, "b": dist.Normal(0.0, 1.0)}, (), dist.Normal(0.0, 1.0))
    with pytest.raises(ValueError, match="joins the incoming weights of the units of layer 0"):
        redraw_units(NETWORK, prior, jnp.sum)


def test_steps_lower_everywhere():
    def step(key, params, scale):
        kernel = redraw_units(NETWORK, dist.Normal(0.0, scale), lambda p: -jnp.sum(p[0]["b"] ** 2))
        return kernel.step(key, kernel.init(params))

    params = init(jax.random.key(0), NETWORK)
    shapes = jax.eval_shape(lambda: (jax.random.key(0), params, jnp.ones(())))
    jax.export.export(jax.jit(step), platforms=("cpu", "cuda", "tpu"))(*shapes)
