"""Bad options and positions for kernels, their combinators, and the targets under them."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import jaxbnn
from jaxbnn import kernels, targets
from jaxbnn.networks import init, mlp
from tests.kit.bad_arrays import BAD_NUMBERS, EXTREME
from tests.kit.hostile_slots import Tried, array, count, family, fixed, fraction, number, tree, word

KEY = jax.random.key(0)
NETWORK = mlp((2, 3, 1), "relu")
PRIOR = dist.Normal(0.0, 1.0)
X, Y = np.ones((4, 2), np.float32), np.zeros((4, 1), np.float32)
POSTERIOR = jaxbnn.Posterior(NETWORK, PRIOR, jaxbnn.Gaussian(1.0), X, Y)
PARAMS = tree(lambda: init(KEY, NETWORK), but=("booleans",))
NUMBERS = ("strings", "no array", "NaN", "infinity", *EXTREME)
BAD_STEPS = tuple(v for v in BAD_NUMBERS if v is not None)
LEARNED = jaxbnn.Posterior(
    NETWORK,
    {"network": PRIOR, "log_noise_scale": PRIOR},
    jaxbnn.LearnedGaussian(),
    X,
    Y,
)


def _log_density(x):
    return -0.5 * jnp.sum(jnp.asarray(x) ** 2)


def _step(kernel, position):
    state, info = kernel.step(KEY, kernel.init(position))
    return state.position, jax.tree.leaves(info)


def _ladder(temperatures, every, swap, tempered):
    return jaxbnn.power_posterior(
        lambda t, _: jaxbnn.pcn(lambda x: t * _log_density(x), 0.5),
        lambda x: _log_density(x),
        lambda x: -jnp.sum(x**2)[None],
        temperatures,
        swap_every=every,
        swap=swap,
        tempered=tempered,
    )


def _power_posterior(temperatures, every, swap, tempered, position):
    return _step(_ladder(temperatures, every, swap, tempered), position)


def _cycle(weights, position):
    walk = jaxbnn.pcn(_log_density, 0.5)
    return _step(jaxbnn.cycle(walk, jaxbnn.mix([walk, walk], weights)), position)


def _prior_precisions(concentration, params):
    prior = targets.hierarchical_prior(NETWORK, concentration=concentration)
    posterior = jaxbnn.Posterior(NETWORK, prior, jaxbnn.Gaussian(1.0), X, Y)
    log_precision = posterior.sample_prior(KEY)["log_precision"]
    position = {"network": params, "log_precision": log_precision}
    return _step(jaxbnn.prior_precisions(posterior), position)


def _on_block(step_size, a, b):
    def make_kernel(whole):
        return jaxbnn.pcn(lambda block: _log_density(whole(block)["a"]), step_size)

    kernel = jaxbnn.on_block(make_kernel, "a")
    state = kernel.init({"a": a, "b": b})
    state = jaxbnn.refresh(kernel, state, {"a": b, "b": a})
    return kernel.step(KEY, state)[0].position


def _on_vector(step_size, a, b):
    def make_kernel(whole):
        return jaxbnn.pcn(lambda vector: _log_density(whole(vector)["a"]), step_size)

    kernel = jaxbnn.on_vector(make_kernel)
    return kernel.step(KEY, kernel.init({"a": a, "b": b}))[0].position


# The walk of a log density that takes any shape.
POSITION = array(2)
TRIED = {
    "power_posterior": Tried(
        _power_posterior,
        (
            fixed(np.array([0.0, 0.5, 1.0], np.float32)),
            count(1),
            word("even_odd"),
            word("likelihood"),
            POSITION,
        ),
        is_checked=False,
    ),
    "cycle and mix": Tried(_cycle, (fixed(np.array([0.5, 0.5])), POSITION), is_checked=False),
    "on_block and refresh": Tried(
        # A block that the kernel does not move may be complex.
        _on_block,
        (number(0.5), POSITION, array(2, kinds=NUMBERS)),
        is_checked=False,
    ),
    "on_vector": Tried(_on_vector, (number(0.5), POSITION, POSITION), is_checked=False),
    "metropolis": Tried(
        lambda ratio: kernels.metropolis(KEY, ratio, jnp.zeros(2), jnp.ones(2)),
        (fixed(np.float32(-0.5), kinds=("NaN", "infinity", "complex", "zeros")),),
    ),
    "swap_log_ratio": Tried(
        lambda a, b: kernels.swap_log_ratio(jnp.array(0.5), jnp.array(1.0), a, b),
        (array(3), array(3)),
        is_checked=False,
    ),
    "beta_from_delta": Tried(
        lambda v: kernels.delta_from_beta(kernels.beta_from_delta(v)), (number(0.1, ()),)
    ),
    "delta_from_beta": Tried(kernels.delta_from_beta, (fraction(0.5),)),
    "covariance_operator": Tried(
        lambda v, x: _step(
            jaxbnn.pcn(_log_density, 0.5, kernels.covariance_operator(lambda u: v * u)), x
        ),
        # What a caller's own function makes of other shapes is the caller's.
        (array(2, kinds=(*EXTREME, "NaN")), array(2, kinds=NUMBERS)),
        is_checked=False,
    ),
    "symmetry_moves": Tried(
        lambda step, p: _step(jaxbnn.symmetry_moves(NETWORK, PRIOR, scaling_step=step), p),
        (number(0.5, bad=BAD_STEPS), PARAMS),
        is_checked=False,
    ),
    "prior_precisions": Tried(
        _prior_precisions, (number(1.5, bad=BAD_STEPS), PARAMS), is_checked=False
    ),
    "redraw_units": Tried(
        lambda p: _step(jaxbnn.redraw_units(NETWORK, PRIOR, POSTERIOR.log_likelihood), p),
        (PARAMS,),
        is_checked=False,
    ),
    "explain_symmetries": Tried(
        lambda prior: len(jaxbnn.explain_symmetries(NETWORK, prior)),
        (word("nonsense")._replace(good=lambda rng: PRIOR),),
    ),
    "gauss_newton_metric": Tried(
        lambda p: jaxbnn.gauss_newton_metric(POSTERIOR)(p),
        (PARAMS,),
        is_checked=False,
        # Activations that overflow; smmala refuses such a metric.
        undefined=EXTREME,
    ),
    "posterior_hessian": Tried(
        lambda p: jaxbnn.posterior_hessian(POSTERIOR)(p),
        (PARAMS,),
        is_checked=False,
        # Activations that overflow; smmala refuses such a metric.
        undefined=EXTREME,
    ),
    "expand_prior": Tried(
        lambda p: targets.expand_prior(p, NETWORK) and (),
        (word("nonsense")._replace(good=lambda rng: PRIOR),),
    ),
    "LearnedGaussian": Tried(
        lambda p, s: LEARNED.log_likelihood({"network": p, "log_noise_scale": s}),
        (PARAMS, fixed(np.float32(0.5), kinds=("zeros", "NaN"))),
        is_checked=False,
    ),
}

FAMILIES = {"kernels, combinators and targets": family(TRIED)}
