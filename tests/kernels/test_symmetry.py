"""Tests of kernels.symmetry_priors and kernels.symmetry_steps: the symmetry moves keep prior and
posterior, leave the output, and say what a prior breaks.

Draws of the prior are exact draws for a flat likelihood, which shows every error in a prior ratio
or a Jacobian; that the moves leave a real likelihood alone is shown with data from the model, and
on the outputs themselves.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from jaxbnn.kernels import symmetry_steps
from jaxbnn.kernels.symmetry import explain_symmetries, symmetry_moves
from jaxbnn.kernels.symmetry_priors import exchangeable_sets, log_ratio_of_leaves
from jaxbnn.networks import Activation, Dense, Network, Residual, mlp, parameter_shapes
from jaxbnn.networks.symmetries import flip_units, scale_units, weight_symmetries
from jaxbnn.targets import (
    Categorical,
    Posterior,
    expand_prior,
    normal_prior,
    uniform_prior,
)
from jaxbnn.targets.prior_density import prior_log_prob
from jaxbnn.targets.prior_trees import is_distribution, sample_prior
from tests.kit import (
    Target,
    both_sizes,
    check_exact_start,
    check_flux_identity,
    position_functions,
    posterior_target,
    sizes_with_mutants,
)

STEPS = 3  # odd: a flip that is always accepted undoes itself every second time
SKEW = dist.Normal(0.6, 1.3)  # not centred: the prior ratio of every flip matters
SIGMOID = mlp((1, 2, 2), "sigmoid")
NTK = mlp((1, 2, 2), "sigmoid", parametrisation="ntk", weight_scale=1.7, bias_scale=0.6)
TIED = Network((Dense(2), Residual((Dense(2), Activation("identity"))), Dense(1)), (1,))
COUPLED = Network((Dense(2), Residual((Activation("sigmoid"), Dense(2))), Dense(1)), (1,))


def own_means(num_outputs, means):
    """Normal priors whose means differ between the hidden units of a network of one input."""
    means = jnp.asarray(means)
    outgoing = jnp.broadcast_to(means[:, None], (len(means), num_outputs))
    return (
        {"b": dist.Normal(means, 1.0).to_event(1), "w": dist.Normal(means[None], 1.0).to_event(2)},
        (),
        {"b": dist.Normal(0.0, 1.0), "w": dist.Normal(outgoing, 1.0).to_event(2)},
    )


def correlated():
    covariance = jnp.array([[1.0, 0.5], [0.5, 2.0]])
    first = dist.MultivariateNormal(jnp.array([0.5, -0.5]), covariance)
    return ({"b": SKEW, "w": first}, (), {"b": SKEW, "w": SKEW})


def prior_target(network, prior):
    prior = expand_prior(prior, network)

    def log_density(position, data=None):
        return prior_log_prob(prior, position)

    return Target(
        lambda key: (sample_prior(key, prior), None),
        log_density,
        lambda position, data: position_functions(position, log_density(position)),
    )


def zero(*args):
    return jnp.zeros(())


def no_bias_ratio(mutant):
    mutant.setattr(symmetry_steps, "log_ratio_of_leaves", zero)


def no_flip_ratio(mutant):
    mutant.setattr(
        symmetry_steps, "flip_log_ratios", lambda priors, p, units: jnp.zeros(units.size)
    )


def no_jacobian(mutant):
    mutant.setattr(symmetry_steps, "jacobian_exponent", lambda leaves, units: 0)


def no_set_jacobian(mutant):
    whole = symmetry_steps.scale_units
    mutant.setattr(symmetry_steps, "scale_units", lambda p, u, c: (whole(p, u, c)[0], zero()))


def shift_with_the_variance_of_one(mutant):
    redraw = symmetry_steps._redraw_means

    def wrong(key, prior, value):
        right = redraw(key, prior, value)
        return value + 2**0.5 * (right - value)

    mutant.setattr(symmetry_steps, "_redraw_means", wrong)


def own_classes():
    """Of each class its own mean and scale, so that the shift weighs them by their precisions."""
    loc, scale = jnp.array([0.0, 1.0, -0.5]), jnp.array([0.4, 1.0, 2.5])
    of_w = dist.Normal(jnp.tile(loc, (2, 1)), jnp.tile(scale, (2, 1)))
    return ({"b": dist.Normal(loc, scale).to_event(1), "w": of_w.to_event(2)},)


CASES = {
    "sigmoid": (SIGMOID, SKEW, False, [no_bias_ratio, no_flip_ratio]),
    "sigmoid-box": (SIGMOID, dist.Uniform(-1.0, 2.0), False, [no_bias_ratio]),
    "sigmoid-coupled": (COUPLED, SKEW, False, [no_bias_ratio]),
    "tanh": (mlp((1, 2, 1), "tanh"), SKEW, False, [no_flip_ratio]),
    "relu": (mlp((1, 2, 1), "relu"), SKEW, False, [no_jacobian]),
    "abs-box": (mlp((1, 2, 1), "abs"), dist.Uniform(-1.0, 2.0), False, []),
    "tied": (TIED, SKEW, False, [no_bias_ratio, no_set_jacobian]),
    "softmax": (mlp((2, 3)), SKEW, True, [shift_with_the_variance_of_one]),
    "softmax-own": (mlp((2, 3)), own_classes(), True, [shift_with_the_variance_of_one]),
    "softmax-box": (mlp((2, 3)), dist.Uniform(-1.0, 2.0), True, [shift_with_the_variance_of_one]),
    "sets": (mlp((1, 3, 1), "gelu"), own_means(1, [0.0, 1.0, 0.0]), False, []),
    "swap": (mlp((1, 2, 1), "gelu"), correlated(), False, [no_bias_ratio]),
}


# Their moves and mutants are those of other cases.
ALIKE = {"sigmoid-box", "sigmoid-coupled", "tanh", "abs-box", "softmax-box"}


def marked(case):
    reason = "NumPyro's MultivariateNormal broadcasts ranks"
    marks = [pytest.mark.third_party(reason=reason)] if case == "swap" else []
    return pytest.param(case, marks=[*marks, *([pytest.mark.long] if case in ALIKE else [])])


@pytest.mark.short("relu-short", "softmax-short", "softmax-own-short", "sigmoid-short")
@sizes_with_mutants(50_000)
@pytest.mark.parametrize("case", [marked(name) for name in CASES])
def test_prior_is_invariant_and_mutants_are_caught(case, num_chains, with_mutants, monkeypatch):
    network, prior, softmax, mutants = CASES[case]
    target = prior_target(network, prior)

    def check():
        kernel = symmetry_moves(network, prior, softmax=softmax)
        return check_exact_start(kernel, target, steps=STEPS, num_chains=num_chains)

    result = check()
    assert result.passes, str(result)
    for mutate in mutants if with_mutants else ():
        with monkeypatch.context() as mutant:
            mutate(mutant)
            assert not check().passes, mutate.__name__


@both_sizes(50_000)
@pytest.mark.parametrize(
    "network", [SIGMOID, pytest.param(NTK, marks=pytest.mark.long)], ids=["standard", "ntk"]
)
def test_posterior_is_invariant(network, num_chains, monkeypatch):
    """With data drawn from the model, errors that change the output are seen too."""
    x = jnp.array([[-1.0], [0.5], [2.0]])
    prior = expand_prior(dist.Normal(0.6, 2.0), network)
    labels = jnp.zeros(3, int)
    target = posterior_target(lambda y: Posterior(network, prior, Categorical(), x, y), x, labels)

    def check():
        kernel = symmetry_moves(network, prior, softmax=True)
        return check_exact_start(kernel, target, steps=STEPS, num_chains=num_chains)

    result = check()
    assert result.passes, str(result)
    if network is NTK:
        right = symmetry_steps.outgoing_sums
        with monkeypatch.context() as mutant:  # in the scan; the weights' signs stay right
            mutant.setattr(symmetry_steps, "outgoing_sums", lambda *a: 2 * right(*a))
            assert not check().passes


def float64_draw(rng, network):
    shapes = parameter_shapes(network)
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), shapes)


@pytest.mark.parametrize(
    ("name", "parametrisation"),
    [
        ("sigmoid", "ntk"),
        pytest.param("abs", "ntk", marks=pytest.mark.long),
        pytest.param("identity", "standard", marks=pytest.mark.long),
    ],
)
def test_steps_leave_the_output(name, parametrisation, rng, x64):
    scales = {"weight_scale": 1.7, "bias_scale": 0.6} if parametrisation == "ntk" else {}
    network = mlp((3, 4, 3, 2), name, parametrisation=parametrisation, **scales)
    kernel = symmetry_moves(network, normal_prior(network, weight_precision=0.1), softmax=True)
    params, x = float64_draw(rng, network), rng.normal(size=(5, 3))

    @jax.jit
    def run(params):
        def step(state, key):
            return kernel.step(key, state)

        keys = jax.random.split(jax.random.key(0), 20)
        state, infos = jax.lax.scan(step, kernel.init(params), keys)
        return state.position, infos, network.apply(params, x), network.apply(state.position, x)

    moved, infos, before, after = run(params)
    difference = np.asarray(after - before)
    np.testing.assert_allclose(difference, difference[:, :1] * np.ones(2), atol=1e-11)
    assert not np.allclose(moved[0]["w"], params[0]["w"])
    assert all((rate > 0).any() for rate in infos.by_move.values())
    assert infos.acceptance_rate.shape == (20,)


def test_flux_of_a_scaling(rng):
    """r = log prior(y) - log prior(x) + (incoming - outgoing) log c, on pairs along the orbit."""
    network = mlp((2, 3, 2), "relu")
    (units,) = weight_symmetries(network).scalings
    priors = jax.tree.leaves(expand_prior(SKEW, network), is_leaf=is_distribution)
    with jax.enable_x64(True):
        x = jax.vmap(lambda _: float64_draw(rng, network))(jnp.zeros(1))
        x = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=(300, *leaf.shape[1:]))), x)
        factors = jnp.ones((300, 3)).at[:, 1].set(jnp.exp(jnp.asarray(rng.normal(size=300))))
        y = jax.vmap(lambda p, c: scale_units(p, units, c)[0])(x, factors)

    def log_factor(a, b, log):
        return log(b[0]["b"][1] / a[0]["b"][1])

    def log_pi(p):
        return sum(stats.norm.logpdf(leaf, 0.6, 1.3).sum() for leaf in jax.tree.leaves(p))

    def log_q(a, b):
        # Symmetric in log c; 2 weights and a bias come in, 2 weights go out: |det| = c, split
        # between the two directions of the pair.
        log_c = log_factor(a, b, np.log)
        return stats.norm.logpdf(log_c) - 0.5 * log_c

    def log_ratio(a, b):
        log_factors = jnp.zeros(3).at[1].set(log_factor(a, b, jnp.log))
        return symmetry_steps.scaling_log_ratios(priors, a, units, log_factors)[1]

    result = check_flux_identity(log_pi, log_q, log_ratio, (x, y))
    assert result.passes, result


def test_flux_of_a_sigmoid_flip(rng):
    (units,) = weight_symmetries(NTK).flips
    priors = jax.tree.leaves(expand_prior(SKEW, NTK), is_leaf=is_distribution)
    with jax.enable_x64(True):
        shapes = parameter_shapes(NTK)
        x = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=(300, *leaf.shape))), shapes)
        y = jax.vmap(lambda p: flip_units(p, units, jnp.array([1.0, -1.0]))[0])(x)

    def log_pi(p):
        return sum(stats.norm.logpdf(leaf, 0.6, 1.3).sum() for leaf in jax.tree.leaves(p))

    def log_ratio(a, b):
        own = symmetry_steps.flip_log_ratios(priors, a, units)[1]
        (absorption,) = units.absorptions
        old, new = jax.tree.leaves(a), jax.tree.leaves(b)
        return own + log_ratio_of_leaves(priors, old, new, [absorption.bias])

    result = check_flux_identity(log_pi, lambda a, b: 0.0, log_ratio, (x, y))
    assert result.passes, result


@pytest.mark.short(
    "prior0-sign flips of layer 0-permutations",
    "prior3-class shift of the read-out's weights-flips",
)
@pytest.mark.parametrize(
    ("prior", "lost", "kept"),
    [
        (dist.Exponential(1.0), "sign flips of layer 0", "permutations"),
        (dist.Uniform(0.0, 1.0), "sign flips of layer 0", "permutations"),
        (own_means(2, [0.0, 1.0, 2.0]), "permutations of layer 0", "flips"),
        (dist.Laplace(0.0, 1.0), "class shift of the read-out's weights", "flips"),
    ],
)
def test_a_broken_symmetry_is_named_and_the_others_kept(prior, lost, kept):
    network = mlp((1, 3, 2), "sigmoid")
    softmax = "class" in lost
    with pytest.warns(UserWarning, match="are lost|is lost") as caught:
        kernel = symmetry_moves(network, prior, softmax=softmax)
    assert any(lost in str(warning.message) for warning in caught)
    params = sample_prior(jax.random.key(1), expand_prior(prior, network))
    _, info = jax.eval_shape(kernel.step, jax.random.key(0), kernel.init(params))
    assert any(name.startswith(kept) for name in info.by_move)
    assert lost in explain_symmetries(network, prior, softmax=softmax)


def test_a_complete_set_of_moves_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        symmetry_moves(SIGMOID, normal_prior(SIGMOID), softmax=True)
    report = explain_symmetries(SIGMOID, uniform_prior(SIGMOID, -2.0, 2.0), softmax=True)
    assert report.splitlines() == [
        "class shift: 2 arrays",
        "flips of layer 0 (Dense): 2 units",
        "permutations of layer 0 (Dense): 2 units",
    ]
    report = explain_symmetries(mlp((1, 2, 2), "sigmoid", bias=False), dist.Normal(0.0, 1.0))
    assert "no bias to absorb" in report


def test_exchangeable_sets():
    network = mlp((1, 3, 1), "tanh")
    (units,) = weight_symmetries(network).permutations

    def sets(prior):
        expanded = expand_prior(prior, network)
        return exchangeable_sets(jax.tree.leaves(expanded, is_leaf=is_distribution), units)

    assert sets(dist.Normal(0.0, 1.0)).tolist() == [0, 0, 0]
    assert sets(own_means(1, [1.0, 2.0, 1.0])).tolist() == [0, 1, 0]
    scale = jnp.array([1.0, 2.0, 1.0])
    inner = {
        "b": dist.Normal(0.0, scale).to_event(1),
        "w": dist.Normal(0.0, scale[None]).to_event(2),
    }
    assert sets((inner, (), dict.fromkeys("bw", dist.Normal(0.0, 1.0)))).tolist() == [0, 1, 0]
    unseen = jax.eval_shape(
        lambda means: jnp.asarray(sets(own_means(1, means)) is None), jnp.zeros(3)
    )
    assert unseen.dtype == bool


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((mlp((2, 1)), SKEW), {}, "leave no symmetry"),
        ((mlp((2, 2, 1)), SKEW), {"softmax": True}, "softmax=True needs"),
        ((mlp((2, 2, 1)), SKEW), {"scaling_step": -1.0}, "scaling_step must be positive"),
    ],
)
def test_bad_input_gets_one_sentence(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        symmetry_moves(*arguments, **options)


def test_a_position_of_the_wrong_shape_gets_one_sentence():
    kernel = symmetry_moves(SIGMOID, SKEW)
    with pytest.raises(ValueError, match="the position must be shaped like"):
        kernel.init(({"w": jnp.zeros((1, 2))},))


def test_a_position_outside_a_box_or_not_finite_does_not_spread():
    network = mlp((1, 2, 2), "sigmoid")
    kernel = symmetry_moves(network, dist.Uniform(-1.0, 1.0), softmax=True)
    params = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 0.5), parameter_shapes(network))
    params[0]["w"] = jnp.array([[jnp.nan, 0.5]])
    params[2]["b"] = jnp.array([3.0, 0.5])
    state, info = jax.jit(kernel.step)(jax.random.key(0), kernel.init(params))
    assert np.isnan(state.position[0]["w"]).sum() == 1
    assert np.isfinite(jax.tree.leaves(info)).all()


@pytest.mark.long
def test_box_is_never_left():
    """In float32, rounding of absorbed and shifted numbers must not cross a bound."""
    network = mlp((1, 3, 3), "sigmoid")
    prior = expand_prior(dist.Uniform(-1.0, 1.0), network)
    kernel = symmetry_moves(network, prior, softmax=True)

    starts = sample_prior(jax.random.key(0), prior, (200,))

    @jax.jit
    def largest(keys):
        def step(states, keys):
            return jax.vmap(kernel.step)(keys, states)[0], None

        states, _ = jax.lax.scan(step, jax.vmap(kernel.init)(starts), keys)
        return jnp.max(jnp.stack([jnp.max(jnp.abs(p)) for p in jax.tree.leaves(states.position)]))

    assert largest(jax.random.split(jax.random.key(1), (500, 200))) <= 1.0


def test_hyper_parameters_may_be_traced_and_steps_lower_everywhere():
    network = mlp((2, 3, 2), "abs")
    params = jax.tree.map(lambda leaf: jnp.ones(leaf.shape, leaf.dtype), parameter_shapes(network))

    def step(key, params, precision, scaling_step):
        prior = normal_prior(network, weight_precision=precision)
        kernel = symmetry_moves(network, prior, softmax=True, scaling_step=scaling_step)
        return kernel.step(key, kernel.init(params))

    state, _ = jax.jit(jax.vmap(step, (None, None, 0, 0)))(
        jax.random.key(0), params, jnp.array([0.1, 1.0]), jnp.array([0.1, 0.5])
    )
    assert state.position[0]["w"].shape == (2, 2, 3)
    assert state.position[0]["w"].dtype == jnp.float32
    shapes = jax.eval_shape(lambda: (jax.random.key(0), params, jnp.ones(()), jnp.ones(())))
    jax.export.export(jax.jit(step), platforms=("cpu", "cuda", "tpu"))(*shapes)


def test_biases_of_sixteen_bits_absorb_the_flips_of_wider_weights():
    params = sample_prior(jax.random.key(0), normal_prior(SIGMOID))
    params = tuple(
        {**layer, "b": layer["b"].astype(jnp.bfloat16)} if layer else () for layer in params
    )
    kernel = symmetry_moves(SIGMOID, normal_prior(SIGMOID))
    with jax.numpy_dtype_promotion("standard"):
        state, _ = jax.jit(kernel.step)(jax.random.key(1), kernel.init(params))
    assert jax.tree.map(jnp.dtype, state.position) == jax.tree.map(jnp.dtype, params)
