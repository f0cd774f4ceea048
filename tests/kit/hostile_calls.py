"""The calls that `tests.kit.hostile` makes: a strategy a family of public functions."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from hypothesis import strategies as st

import jaxbnn
from jaxbnn import diagnostics, dvi, gibbs, numerics, targets, thermalization, wide
from jaxbnn.networks import AvgPool, Conv, Dense, Flatten, Network, init, mlp
from tests.kit.bad_arrays import (
    BAD_NUMBERS,
    EXTREME,
    EXTREME_NUMBERS,
    KINDS,
    MEANINGLESS,
    ORDINARY,
    bad_array,
)
from tests.kit.hostile import Call

KEY = jax.random.key(0)
ROWS, COLUMNS = 4, 2
NETWORK = mlp((COLUMNS, 3, 1), "tanh")
WIDE = mlp((COLUMNS, 3, 1), "tanh", parametrisation="ntk")
RELU = mlp((COLUMNS, 3, 1), "relu")
CLASSES = mlp((COLUMNS, 3, 3), "relu")

Maker = Callable[[str, np.random.Generator], Call]


def _family(makers: dict[str, Maker], kinds: Sequence[str] = KINDS) -> st.SearchStrategy:
    def make(choice):
        name, kind, number = choice
        return number, makers[name](kind, np.random.default_rng(number))

    numbers = st.integers(0, 2**32 - 1)
    return st.tuples(st.sampled_from(sorted(makers)), st.sampled_from(kinds), numbers).map(make)


def _where_finite(kind: str) -> str:
    """What an unguarded formula may return: overflow where numbers are huge, NaN for NaN."""
    if kind in ("NaN", "infinity"):
        return "nan"
    return "infinite" if kind in (*EXTREME, "half precision") else "finite"


# --- numerics: formulas that check nothing themselves; what JAX calls no number it says itself.


def _elementwise(name: str, function: Callable, count: int = 1, prepare=lambda *a: a) -> Maker:
    def make(kind, rng):
        arrays = [bad_array(kind, (ROWS, COLUMNS), rng) for _ in range(count)]
        return Call(name, kind, lambda: function(*prepare(*arrays)), None, _where_finite(kind))

    return make


def _ordered(a, b):
    if getattr(a, "dtype", np.dtype(object)).kind not in "fiub":
        return a, b
    high = np.maximum(a, b)
    one = np.ones((), np.int8 if high.dtype == bool else high.dtype)  # True + True is True
    return np.minimum(a, b), high + one


def _square(function: Callable, name: str) -> Maker:
    def make(kind, rng):
        a = bad_array(kind, (COLUMNS, COLUMNS), rng)
        if np.shape(a) == (COLUMNS, COLUMNS) and np.asarray(a).dtype.kind in "fiub":
            a = np.maximum(a, a.T)
        return Call(name, kind, lambda: function(a), None, _where_finite(kind))

    return make


NUMERICS = {
    name: _elementwise(name, getattr(numerics, name))
    for name in ("hazard", "log_mills", "log_ndtr", "log_mass_from_mode")
} | {
    "log_normal_interval": _elementwise(
        "log_normal_interval", numerics.log_normal_interval, 2, _ordered
    ),
    "truncated_normal": _elementwise(
        "truncated_normal", lambda a, b: numerics.truncated_normal(KEY, a, b), 2, _ordered
    ),
    "truncated_normal of a scale": _elementwise(
        "truncated_normal of a scale",
        lambda a: numerics.truncated_normal(KEY, -1.0, 1.0, 0.0, a),
    ),
    "sum_of_differences": _elementwise("sum_of_differences", numerics.sum_of_differences, 2),
    "softabs": _elementwise("softabs", lambda a: numerics.softabs(a, 10.0)),
    "softabs_metric": _square(
        lambda a: numerics.softabs_metric(a, 10.0).eigenvalues,
        "softabs_metric",
    ),
}


# --- priors and likelihoods, as the posterior is given them.


def _numbers(name: str, function: Callable, good: Sequence[float] = EXTREME_NUMBERS) -> Maker:
    """Hyper-parameters: what is positive must give an answer, the rest a sentence."""

    def make(kind, rng):
        if kind == "extreme number":
            value = good[rng.integers(len(good))]
            return Call(name, kind, lambda: function(value), None, "infinite")
        value = BAD_NUMBERS[rng.integers(len(BAD_NUMBERS))]
        return Call(name, f"{kind}", lambda: function(value), None, "infinite")

    return make


NUMBER_KINDS = ("bad number", "extreme number")


def _prior_density(prior):
    params = init(KEY, NETWORK)
    return jaxbnn.Posterior(
        NETWORK, prior, jaxbnn.Gaussian(1.0), jnp.ones((2, 2)), jnp.zeros(2)
    ).log_prior(params)


PRIORS = {
    "normal_prior weights": lambda v: _prior_density(
        jaxbnn.normal_prior(NETWORK, weight_precision=v)
    ),
    "normal_prior biases": lambda v: _prior_density(jaxbnn.normal_prior(NETWORK, bias_precision=v)),
    "uniform_prior": lambda v: _prior_density(jaxbnn.uniform_prior(NETWORK, -1.0, v)),
    "Gaussian": lambda v: jaxbnn.Gaussian(v).noise_scale and 1.0,
    "CrossEntropy": lambda v: jaxbnn.CrossEntropy(v).temperature and 1.0,
    "IntermediateNoise": lambda v: jaxbnn.IntermediateNoise(RELU, v).variance(0, jnp.float32),
    "IntermediateNoise precision": lambda v: jaxbnn.IntermediateNoise(
        RELU, 0.1, weight_precision=v
    ).variance(0, jnp.float32),
    "reparametrise": lambda v: (
        wide.reparametrise(WIDE, jnp.ones((2, 2)), jnp.zeros(2), v).noise_scale
    ),
}


def _log_density(x):
    return -0.5 * jnp.sum(jnp.asarray(x) ** 2)


def _one_step(kernel):
    state = kernel.init(jnp.ones(2))
    state, info = kernel.step(KEY, state)
    return state.position, info.acceptance_rate


KERNELS = {
    "pcn": lambda v: _one_step(jaxbnn.pcn(_log_density, v)),
    "pcnl": lambda v: _one_step(jaxbnn.pcnl(_log_density, v)),
    "underdamped_langevin": lambda v: _one_step(
        jaxbnn.underdamped_langevin(_log_density, v, refreshment=0.5)
    ),
    "truncated_mala": lambda v: _one_step(jaxbnn.truncated_mala(_log_density, v, -2.0, 2.0)),
    "truncated_mala edge": lambda v: _one_step(jaxbnn.truncated_mala(_log_density, 0.1, -2.0, v)),
    "smmala": lambda v: _one_step(jaxbnn.smmala(_log_density, v)),
    "jittered": lambda v: _one_step(jaxbnn.jittered(lambda e: jaxbnn.pcn(_log_density, e), v)),
    "dense_covariance": lambda v: _one_step(
        jaxbnn.pcn(_log_density, 0.1, jaxbnn.kernels.dense_covariance(v))
    ),
}


def _likelihood(name: str, likelihood, network, labels=None) -> Maker:
    def make(kind, rng):
        x = bad_array(kind, (ROWS, COLUMNS), rng) if rng.integers(2) else None
        y = bad_array(kind, (ROWS, 1), rng) if x is None or rng.integers(2) else None
        if labels is not None and (y is None or kind in ORDINARY):
            y = rng.integers(0, labels, ROWS).astype(np.int32)
        if x is None:
            x = rng.normal(size=(len(y) if np.ndim(y) else ROWS, COLUMNS)).astype(np.float32)
        if y is None:
            y = rng.normal(size=(len(x) if np.ndim(x) else ROWS, 1)).astype(np.float32)
        if labels is not None and np.ndim(x) and np.ndim(y):
            y = y[: len(x)]

        def function():
            posterior = jaxbnn.Posterior(network, dist.Normal(0, 1), likelihood, x, y)
            params = init(KEY, network)
            return posterior.log_likelihood(params)

        return Call(name, kind, function, None, _where_finite(kind).replace("nan", "finite"))

    return make


LIKELIHOODS = {
    "Gaussian": _likelihood("Gaussian", jaxbnn.Gaussian(0.5), NETWORK),
    "HeteroscedasticGaussian": _likelihood(
        "HeteroscedasticGaussian", jaxbnn.HeteroscedasticGaussian(), mlp((2, 3, 2), "tanh")
    ),
    "SoftplusScaleGaussian": _likelihood(
        "SoftplusScaleGaussian", targets.SoftplusScaleGaussian(), mlp((2, 3, 2), "tanh")
    ),
    "Bernoulli": _likelihood("Bernoulli", jaxbnn.Bernoulli(), NETWORK, 2),
    "Categorical": _likelihood("Categorical", jaxbnn.Categorical(), CLASSES, 3),
}


# --- data of the other readings of a network.


def _data(name: str, run: Callable, shape=(ROWS, COLUMNS), is_checked: bool = True) -> Maker:
    def make(kind, rng):
        x = bad_array(kind, shape, rng)
        rows = x.shape[0] if np.ndim(x) else ROWS
        y = np.full(rows, 0.5, np.float32)
        if rng.integers(2) and kind not in ("no rows", "one row"):
            x = rng.normal(size=shape).astype(np.float32)
            y = bad_array(kind, (ROWS, 1), rng)
        allows = _where_finite(kind)
        if is_checked:
            allows = allows.replace("nan", "finite")
        return Call(name, kind, lambda: run(x, y), None, allows)

    return make


def _gibbs(x, y):
    model = jaxbnn.IntermediateNoise(RELU, 0.1)
    kernel = jaxbnn.gibbs_sampler(model, x, y)
    state, _ = kernel.step(KEY, kernel.init(model.zero_position(x, y)))
    return state.position.params


def _probit(x, y):
    model = jaxbnn.IntermediateNoise(CLASSES, 0.1, output="probit")
    kernel = jaxbnn.gibbs_sampler(model, x, y)
    state, _ = kernel.step(KEY, kernel.init(model.zero_position(x, y)))
    return state.position.params


def _scaled_logits(x, y):
    model = jaxbnn.IntermediateNoise(CLASSES, 0.1, output="probit")
    kernel = gibbs.logit_scale_moves(model, x)
    state, _ = kernel.step(KEY, kernel.init(model.random_position(KEY, x, y)))
    return state.position.params


def _freed(make):
    """One step of a kernel of the intermediate-noise model, given data."""

    def run(x, y):
        model = jaxbnn.IntermediateNoise(RELU, 0.1)
        kernel = make(model, x, y)
        state, _ = kernel.step(KEY, kernel.init(model.random_position(KEY, x, y)))
        return state.position.params

    return run


def _collapsed(x, y):
    layers = (Conv(1, (2, 2)), AvgPool((2, 2)), Flatten(), Dense(1))
    model = jaxbnn.IntermediateNoise(Network(layers, (4, 4, 1)), 0.1)
    model, averaged, *_ = gibbs.collapse_pooling(model, x)
    kernel = jaxbnn.gibbs_sampler(model, averaged, y)
    return kernel.step(KEY, kernel.init(model.zero_position(averaged, y)))[0].position.params


def _annealed(x, y):
    model = jaxbnn.IntermediateNoise(RELU, 0.1)
    start = jax.tree.map(lambda leaf: leaf[None], model.random_position(KEY, x, y))
    draws = thermalization.sample_annealed(KEY, model, x, y, start, 1, num_warmup=4, progress=False)
    return draws.positions


def _reparametrised(x, y):
    posterior = wide.reparametrise(WIDE, x, y, 0.1)
    phi = init(KEY, WIDE)
    return posterior.log_density(phi), posterior.to_weights(phi)


def _dvi(x, y):
    vi = jaxbnn.deterministic_vi(RELU, jaxbnn.Gaussian(0.5), jaxbnn.normal_prior(RELU))
    start = dvi.initial_position(KEY, RELU, shape=(1,))
    return dvi.fit(KEY, vi, start, x, y, num_updates=1, progress=False).positions


DATA = {
    "gibbs_sampler": _data("gibbs_sampler", _gibbs),
    "gibbs_sampler probit": _data("gibbs_sampler probit", _probit),
    "interweave": _data("interweave", _freed(lambda m, x, y: gibbs.interweave(m, x, y, 0.1))),
    "scale_moves": _data("scale_moves", _freed(lambda m, x, y: gibbs.scale_moves(m, x))),
    "logit_scale_moves": _data("logit_scale_moves", _scaled_logits),
    "noncentred_scale_moves": _data("noncentred_scale_moves", _freed(gibbs.noncentred_scale_moves)),
    "redraw_noisy_units": _data("redraw_noisy_units", _freed(gibbs.redraw_noisy_units)),
    "interwoven_gibbs": _data(
        "interwoven_gibbs", _freed(lambda m, x, y: gibbs.interwoven_gibbs(m, x, y, 0.1))
    ),
    "collapse_pooling": _data("collapse_pooling", _collapsed, (ROWS, 4, 4, 1)),
    "turn_units": _data("turn_units", _freed(gibbs.turn_units)),
    "gibbs_with_moves": _data(
        "gibbs_with_moves",
        _freed(lambda m, x, y: gibbs.gibbs_with_moves(m, x, y, [gibbs.scale_moves(m, x)])),
    ),
    "sample_annealed": _data("sample_annealed", _annealed),
    "optimised_start": _data(
        "optimised_start",
        lambda x, y: thermalization.optimised_start(
            KEY, jaxbnn.IntermediateNoise(RELU, 0.1), x, y, num_updates=2, num_refits=1
        ),
    ),
    "reparametrise": _data("reparametrise", _reparametrised),
    "marginal_conditional": _data(
        "marginal_conditional",
        lambda x, y: wide.marginal_conditional(WIDE, x, y, 0.1).log_likelihood(
            init(KEY, WIDE)[:-1]
        ),
    ),
    "deterministic_vi": _data("deterministic_vi", _dvi),
    "network.apply": _data(
        "network.apply",
        lambda x, y: jaxbnn.networks.apply(NETWORK, init(KEY, NETWORK), x),
        is_checked=False,  # a formula: the outputs of a row with NaN are NaN
    ),
}

# --- diagnostics: draws (chain, draw, coordinate).


def _diagnostic(name: str, function: Callable) -> Maker:
    def make(kind, rng):
        draws = bad_array(kind, (ROWS, 12, COLUMNS), rng)
        # Documented: NaN for a coordinate that holds one, or whose draws are all equal (numbers
        # below the smallest normal float are zero to XLA), or for dependent coordinates.
        undefined = ("NaN", "infinity", "zeros", "constant column", "subnormal")
        is_joint = name in ("multivariate_ess", "covariance_agreement")
        is_nan = kind in undefined or (is_joint and kind == "duplicated columns")
        allows = "nan" if is_nan else "infinite" if name.startswith("ess") else "finite"
        return Call(name, kind, lambda: function(draws), None, allows)

    return make


DIAGNOSTICS = {
    name: _diagnostic(name, getattr(diagnostics, name))
    for name in (
        "autocorrelation",
        "ess_bulk",
        "ess_geyer",
        "ess_tail",
        "ess_tfp",
        "folded_split_rhat",
        "gelman_rubin",
        "mcse",
        "multivariate_ess",
        "rank_rhat",
        "rhat_brooks_gelman",
        "rhat_variance_ratio",
        "split_rhat",
        "covariance_agreement",
    )
} | {"summary": _diagnostic("summary", lambda draws: diagnostics.summary(draws).mean)}


# --- the runner.


# One kernel, so that programs of the same shapes are compiled once.
WALK = jaxbnn.pcn(_log_density, 0.5)


def _run(x, num_samples=3, **options):
    return jaxbnn.sample(KEY, WALK, x, num_samples, progress=False, **options).positions


def _counts(name):
    return lambda v: _run(jnp.zeros((2, 2)), **{name: v})


RUNNER_DATA = {"sample": _data("sample", lambda x, y: _run(x))}
RUNNER = {name: _counts(name) for name in ("num_warmup", "thinning", "chunk_size")} | {
    "repeat": lambda v: _one_step(jaxbnn.repeat(jaxbnn.pcn(_log_density, 0.1), v)),
    "num_samples": lambda v: _run(jnp.zeros((2, 2)), v),
}

FAMILIES = {
    "numerics": _family(NUMERICS),
    "numbers: priors and likelihoods": _family(
        {name: _numbers(name, f) for name, f in PRIORS.items()}, NUMBER_KINDS
    ),
    "numbers: kernels": _family(
        {name: _numbers(name, f) for name, f in KERNELS.items()}, NUMBER_KINDS
    ),
    "numbers: sample": _family(
        {name: _numbers(name, f, (1, 2)) for name, f in RUNNER.items()}, NUMBER_KINDS
    ),
    "posterior": _family(LIKELIHOODS),
    "data": _family(DATA),
    "positions": _family(RUNNER_DATA),
    "diagnostics": _family(DIAGNOSTICS),
}

__all__ = ["FAMILIES", "MEANINGLESS"]
