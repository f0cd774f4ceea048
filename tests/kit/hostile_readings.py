"""Bad arrays and options for the Gibbs conditionals, wide networks and moment propagation."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import jaxbnn
from jaxbnn import dvi, gibbs, wide
from jaxbnn.networks import AvgPool, Dense, init, mlp
from tests.kit.bad_arrays import EXTREME, KINDS
from tests.kit.hostile_slots import Tried, array, count, family, fixed, labels, number, tree, word

KEY = jax.random.key(0)
N, D = 4, 3
LAYER = Dense(2)
LAYER_PARAMS = tree(lambda: {"w": jnp.ones((D, 2)), "b": jnp.ones(2)}, but=("booleans", "integers"))
INPUTS, OUTPUTS = array(D, N), array(2, N)
VARIANCE = number(0.5)
# Documented: conditionals are formulas, and inside the sampler their arguments fit. NaN where a
# square has no finite value in its type; a sweep then keeps the old values and says so.
RELU = gibbs.activation_pieces("relu")


def _conditional(function, *slots):
    return Tried(function, slots, is_checked=False, undefined=EXTREME)


CONDITIONALS = {
    "sample_weights": _conditional(
        lambda *v: gibbs.sample_weights(KEY, LAYER, *v),
        *(LAYER_PARAMS, INPUTS, OUTPUTS, VARIANCE, VARIANCE),
    ),
    "sample_bias": _conditional(
        lambda *v: gibbs.sample_bias(KEY, LAYER, *v),
        *(LAYER_PARAMS, INPUTS, OUTPUTS, VARIANCE, VARIANCE),
    ),
    "sample_weights_and_bias": _conditional(
        lambda *v: gibbs.sample_weights_and_bias(KEY, LAYER, *v),
        *(LAYER_PARAMS, INPUTS, OUTPUTS, VARIANCE, VARIANCE, VARIANCE),
    ),
    "sample_inputs": _conditional(
        lambda *v: gibbs.sample_inputs(KEY, LAYER, *v),
        *(LAYER_PARAMS, INPUTS, OUTPUTS, VARIANCE, VARIANCE),
    ),
    "sample_pre_activations": _conditional(
        lambda *v: gibbs.sample_pre_activations(KEY, RELU, *v),
        *(INPUTS, INPUTS, VARIANCE, VARIANCE),
    ),
    "sample_pooled": _conditional(
        lambda *v: gibbs.sample_pooled(KEY, AvgPool((2, 2)), *v),
        *(array(4, 4, 1, N), array(2, 2, 1, N), VARIANCE, VARIANCE),
    ),
    "sample_logits": _conditional(
        lambda mean, y, v: gibbs.sample_logits(KEY, mean, gibbs.satisfying_logits(mean, y), y, v),
        *(array(3, N), labels(N, 3), VARIANCE),
    ),
    "sample_binary_logit": _conditional(
        lambda *v: gibbs.sample_binary_logit(KEY, *v), array(1, N), labels(N, 2), VARIANCE
    ),
    "activation_pieces": Tried(
        lambda name: len(gibbs.activation_pieces(name).pieces), (word("hard_tanh"),)
    ),
}

WIDE = mlp((8, 4, 1), "tanh", parametrisation="ntk")
REDUCED = wide.reduce_inputs(WIDE, np.eye(3, 8, dtype=np.float32))
STARTS = tree(lambda: init(KEY, REDUCED.network))
JOINT = wide.reparametrise(REDUCED.network, REDUCED.x, jnp.zeros(3), 0.1)


def _steps(kernel, position):
    state, _ = kernel.step(KEY, kernel.init(position, KEY))
    return state.position


def _reduced(size, refreshment, thinning, position):
    kernel = wide.reduced_langevin(
        JOINT.log_density_terms, size, refreshment, REDUCED, thinning=thinning
    )
    return _steps(kernel, position)


def _carried(step_size, num, position):
    projections = wide.weight_projections(REDUCED, KEY, num)
    kernel = jaxbnn.pcn(JOINT.log_likelihood, 0.5)
    return _steps(wide.carry_complement(kernel, step_size, REDUCED, projections), position)


def _read_out(scale, y):
    marginal = wide.marginal_conditional(REDUCED.network, REDUCED.x, y, scale)
    kernel = wide.count_accepted(jaxbnn.pcn(marginal.log_likelihood, 0.5))
    return _steps(wide.with_read_out(kernel, marginal), init(KEY, REDUCED.network))


def _filled(thinning, steps):
    kernel = wide.reduced_langevin(JOINT.log_density_terms, 0.1, 1.0, REDUCED, thinning=2)
    state = kernel.init(init(KEY, REDUCED.network), KEY)
    chain = jax.tree.map(lambda v: jnp.stack([v, v]), (state.position, state.complement))
    return wide.fill_in_langevin(REDUCED, KEY, *chain, steps, thinning=thinning)


READ_OUT_WIDE = {
    "reduce_inputs": Tried(
        lambda x, also: (lambda r: (r.x, r.basis))(wide.reduce_inputs(WIDE, x, also=also)),
        (array(3, 8), array(2, 8)),
    ),
    "reduced_langevin": Tried(_reduced, (number(0.1), number(0.5, ()), count(2), STARTS), False),
    "carry_complement": Tried(_carried, (number(0.5, ()), count(3), STARTS), False),
    "with_read_out": Tried(_read_out, (number(0.1), array(3))),
    "fill_in_langevin": Tried(_filled, (count(2), fixed(np.array([2, 4])))),
    "weight_directions": Tried(lambda n: wide.weight_directions(WIDE, KEY, n), (count(3),)),
}

NETWORK = mlp((2, 3, 1), "relu")
X = array(N, 2)
Q = tree(lambda: dvi.initial_position(KEY, NETWORK))
# Of a q, log scales are spoiled too, and no float holds the exponential of 1e15, nor its moments.
NO_MOMENTS = ("huge (1e30)", "large (1e15)", "mixed scales")
MEAN = fixed(np.zeros((N, 1), np.float32))
SPREAD = fixed(np.ones((N, 1), np.float32))
NORMAL = dist.Normal(0.0, 1.0)


def _moments(name, mean, covariance):
    outputs, slope = dvi.activation_moments(
        name, dvi.GaussianMoments(mean, SPREAD.good(None), covariance)
    )
    return outputs.mean, outputs.covariance, slope


def _expected(mean, variance, y, num):
    outputs = dvi.GaussianMoments(mean, variance)
    likelihood = jaxbnn.Gaussian(1.0)
    p = dvi.predictive(likelihood, outputs, rng_key=KEY, num_samples=num)
    terms = dvi.expected_log_likelihood(likelihood, outputs, y, rng_key=KEY, num_samples=num)
    return terms, p.mean


# A variance is no variance unless it is positive: documented, and NaN is what comes of others.
NO_VARIANCE = tuple(KINDS)
MOMENTS = {
    "initial_position": Tried(
        lambda a, b, c: dvi.initial_position(
            KEY, NETWORK, mean_variance=a, variance=b, bias_variance=c
        ),
        (number(1.0), number(1.0), number(1.0, bad=(0.0, -1.0, float("nan"), "1", 1j))),
    ),
    "propagate": Tried(
        lambda q, x, rule, form: dvi.propagate(NETWORK, q, x, rule=rule, covariance=form),
        (Q, X, word("exact"), word("full")),
        is_checked=False,
        undefined=NO_MOMENTS,
    ),
    "activation_moments": Tried(
        _moments,
        (word("relu"), MEAN, fixed(np.ones((N, 1, 1), np.float32))),
        is_checked=False,
        undefined=NO_VARIANCE,
    ),
    "expected_log_likelihood and predictive": Tried(
        _expected, (MEAN, SPREAD, array(N, 1), count(3)), undefined=NO_VARIANCE
    ),
    "draws": Tried(
        lambda q, x, num: (
            dvi.weight_draws(KEY, NETWORK, q, x, num),
            dvi.activation_draws(KEY, NETWORK, q, x, num),
        ),
        (Q, X, count(3)),
        is_checked=False,
        undefined=NO_MOMENTS,
    ),
    "kl_divergence": Tried(
        lambda q: dvi.kl_divergence(q, NORMAL), (Q,), is_checked=False, undefined=NO_MOMENTS
    ),
    "empirical_bayes": Tried(
        lambda a, b, how, q: (
            dvi.kl_divergence(q, dvi.empirical_bayes(a, b, partition=how)),
            jax.tree.leaves(dvi.fitted_prior(dvi.empirical_bayes(a, b, partition=how), q)),
        ),
        (number(1.0), number(10.0), word("layer"), Q),
        is_checked=False,
        undefined=NO_MOMENTS,
    ),
    "as_distributions": Tried(
        lambda q: jax.tree.leaves(dvi.as_distributions(q)), (Q,), is_checked=False
    ),
    "nodes_for": Tried(
        lambda a, b: dvi.nodes_for(a, max_correlation=b),
        (number(1e-3, (1e-2,)), number(0.9, (0.5,))),
    ),
    "per_fan_in": Tried(lambda v: dvi.per_fan_in(NETWORK, v), (number(1.0),), is_checked=False),
    "standardisation": Tried(
        lambda x, y: (lambda s: (s.inputs(x), s.x_scale))(dvi.standardisation(x, y)),
        (array(5, 2), array(5)),
    ),
    "FlooredGaussian": Tried(
        lambda floor, x, y: jaxbnn.Posterior(
            mlp((2, 3, 2), "relu"), NORMAL, dvi.FlooredGaussian(floor), x, y
        ).log_likelihood(init(KEY, mlp((2, 3, 2), "relu"))),
        (number(0.1), array(N, 2), array(N, 1)),
    ),
    "SoftplusGaussian": Tried(
        lambda x, y: jaxbnn.Posterior(
            mlp((2, 3, 2), "relu"), NORMAL, dvi.SoftplusGaussian(), x, y
        ).log_likelihood(init(KEY, mlp((2, 3, 2), "relu"))),
        (array(N, 2), array(N, 1)),
    ),
}

FAMILIES = {
    "conditionals of the Gibbs sampler": family(CONDITIONALS),
    "reduced inputs and read-outs of wide networks": family(READ_OUT_WIDE),
    "moments, divergences and draws of q": family(MOMENTS),
}
