"""NumPyro models, likelihoods and priors that a sampler cannot take, and expectations far out."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from hypothesis import strategies as st
from numpyro import handlers
from numpyro.primitives import mutable

import jaxbnn
from jaxbnn import dvi
from jaxbnn.interop.arviz import to_arviz
from jaxbnn.interop.blackjax import adaptable, inner_kernel
from jaxbnn.interop.numpyro import kernel, posterior_from_numpyro
from jaxbnn.networks import mlp
from tests.kit.hostile import Call

KEY = jax.random.key(0)
X, Y = np.eye(3, 2, dtype=np.float32), np.array([0.5, 2.0, 1.0], np.float32)
NETWORK = mlp((2, 1))
NORMAL = dist.Normal(0.0, 1.0)


def _mean():
    return numpyro.sample("m", dist.Normal(0.0, 1.0))


def _observe(mean, y):
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def plain(y):
    _observe(_mean(), y)


def minibatch(y):
    m = _mean()
    with numpyro.plate("data", len(y), subsample_size=2) as rows:
        _observe(m, y[rows])


def own_minibatch(y):
    _observe(_mean(), y[jax.random.choice(numpyro.prng_key(), len(y), (2,))])


def without_prior(y):
    _observe(_mean() + numpyro.param("shift", 1.0), y)


def with_state(y):
    state = mutable("state", {"count": 0})
    state["count"] = state["count"] + 1
    plain(y)


def masked(y):
    with numpyro.plate("data", len(y)), handlers.mask(mask=np.array([True, False, True])):
        _observe(numpyro.sample("z", dist.Normal(0.0, 1.0)), y)


def discrete(y):
    _observe(_mean() + numpyro.sample("z", dist.Bernoulli(0.5)), y)


def improper(y):
    _observe(numpyro.sample("m", dist.ImproperUniform(dist.constraints.positive, (), ())), y)


def simplex(y):
    _observe(numpyro.sample("w", dist.Dirichlet(jnp.ones(3))), y)


def counts(y):
    numpyro.sample("y", dist.Poisson(jnp.exp(_mean())), obs=y)


class Own(jaxbnn.targets.Likelihood):
    """A likelihood that no reading knows, and that keeps a number where JAX cannot see it."""

    def __init__(self, **attributes):
        vars(self).update(attributes)

    def log_prob(self, outputs, y):
        return -jnp.abs(outputs[:, 0] - y)

    def predictive(self, outputs, rank):
        return dist.Laplace(outputs[:, 0], 1.0)


LOGITS = dvi.GaussianMoments(jnp.zeros((3, 1)), jnp.ones((3, 1)))


def _of(model, y=Y, **options):
    return posterior_from_numpyro(model, y, **options)


def _vi(network=NETWORK, likelihood=None, prior=None):
    likelihood = jaxbnn.Gaussian(1.0) if likelihood is None else likelihood
    return dvi.deterministic_vi(network, likelihood, prior or dvi.empirical_bayes())


def _metric(likelihood, prior=NORMAL):
    network = mlp((2, 2))
    y = np.ones((3, 2)) if isinstance(likelihood, jaxbnn.Gaussian) else Y
    return jaxbnn.gauss_newton_metric(jaxbnn.Posterior(network, prior, likelihood, X, y))


def _posterior(*arguments):
    return jaxbnn.Posterior(*arguments).log_density


# What was silently wrong, or ended in a traceback, with words of the sentence that it ends in now.
FOUND = [
    ("takes 2 of its 3 rows at random", lambda: _of(minibatch)),
    ("random numbers besides its sample sites", lambda: _of(own_minibatch)),
    ("'shift' has no prior", lambda: _of(without_prior)),
    ("keeps the state 'state'", lambda: _of(with_state)),
    ("'z' is masked", lambda: _of(masked)),
    ("'z' is discrete", lambda: _of(discrete)),
    ("improper, and nothing can be drawn", lambda: _of(improper).sample_prior(KEY)),
    ("fewer degrees of freedom", lambda: _of(simplex, space="constrained")),
    ("holds nan", lambda: _of(plain, np.array([0.5, np.nan]))),
    ("outside the support of its Poisson", lambda: _of(counts, np.array([1, -1]))),
    ("given a value by handlers.substitute", lambda: _of(handlers.substitute(plain, {"m": 1.0}))),
    ("no value for the model's site 'm'", lambda: _of(plain).log_density({})),
    ("has shape (3,), but the site has shape ()", lambda: _of(plain).log_density({"m": Y})),
    ("'n', which is no latent site", lambda: _of(plain).log_prior({"m": Y[0], "n": Y[0]})),
    ("positions are dicts by site", lambda: _of(plain).log_density(Y)),
    ("model must be a NumPyro model", lambda: posterior_from_numpyro(Y, plain)),
    ("arguments that it does not take", lambda: posterior_from_numpyro(plain, Y, Y)),
    ("neither an array nor hashable", lambda: posterior_from_numpyro(plain, {"a", "b"})),
    ("of type str; the draws come first", lambda: to_arviz(X[None], "posterior")),
    ("but is StudentT", lambda: _posterior(NETWORK, NORMAL, dist.StudentT(4.0), X, Y)),
    ("which is to be called", lambda: _posterior(NETWORK, NORMAL, jaxbnn.Gaussian, X, Y)),
    ("network must be a Network", lambda: _posterior((), NORMAL, jaxbnn.Gaussian(1.0), X, Y)),
    ("is to be called", lambda: _vi(likelihood=jaxbnn.Bernoulli)),
    ("layers of a Network", lambda: _vi(lambda params, x: x)),
    ("adaptable(make_kernel)", lambda: blackjax.window_adaptation(jaxbnn.smmala, jnp.sum)),
    ("make_kernel must be a function", lambda: adaptable(jaxbnn.pcn(jnp.sum, 0.1))),
    ("make_kernel must be a function", lambda: kernel(jaxbnn.pcn(jnp.sum, 0.1), plain)),
    ("make_kernel must be a function", lambda: inner_kernel(jaxbnn.pcn(jnp.sum, 0.1))),
    ("a 2, b 3 particles", lambda: inner_kernel(lambda f, a, b: None, a=jnp.ones(2), b=Y)),
    ("is of type ModelPosterior", lambda: jaxbnn.predict(X, X, _of(plain))),
    ("no Gauss-Newton form", lambda: _metric(jaxbnn.HeteroscedasticGaussian())),
    ("not log-concave", lambda: _metric(jaxbnn.Gaussian(1.0), dist.Cauchy(0.0, 1.0))),
    ("Own has no closed form here", lambda: dvi.expected_terms(Own(), LOGITS, Y, {})),
    ("no predictive by quadrature", lambda: dvi.predictive_of(Own(), LOGITS, 1, None, {}, 8)),
    ("attributes but is no dataclass", lambda: jax.tree.leaves(Own(scale=2.0))),
    ("Own needs a network of output", lambda: _posterior(mlp((2, 2)), NORMAL, Own(), X, Y)),
    ("that of a Posterior", lambda: jaxbnn.gauss_newton_metric(NETWORK)),
    ("that of a Posterior", lambda: jaxbnn.posterior_hessian(NETWORK)),
]


def _refusals() -> st.SearchStrategy:
    tried = [Call(words, "no posterior", function, None, "nothing") for words, function in FOUND]
    return st.sampled_from(list(enumerate(tried)))


EXPECTATIONS = {
    "Gaussian": (jaxbnn.Gaussian(0.5), 1, Y),
    "HeteroscedasticGaussian": (jaxbnn.HeteroscedasticGaussian(), 2, Y),
    "SoftplusGaussian": (dvi.SoftplusGaussian(), 2, Y),
    "FlooredGaussian": (dvi.FlooredGaussian(0.1), 2, Y),
    "Bernoulli": (jaxbnn.Bernoulli(), 1, np.array([0, 1, 1])),
    "Categorical": (jaxbnn.Categorical(), 3, np.array([0, 1, 2])),
}


def _expectation(choice) -> tuple[int, Call]:
    name, log_variance, log_mean, sign = choice
    likelihood, width, y = EXPECTATIONS[name]

    def function():
        mean = jnp.full((3, width), sign * 10.0**log_mean, jnp.float32)
        variance = jnp.full((3, width), 10.0**log_variance, jnp.float32)

        def total(m, v):
            return jnp.sum(dvi.expected_log_likelihood(likelihood, dvi.GaussianMoments(m, v), y))

        return jax.value_and_grad(total, (0, 1))(mean, variance)

    shapes = [(), (3, width), (3, width)]
    return 0, Call(name, "outputs far out", function, shapes, "finite")


# Ten to these powers; a logarithm of a variance is never a thousand.
_POWERS = st.sampled_from([-6, -4, -2, 0, 1, 2, 4, 6])

FAMILIES = {
    "models and likelihoods that are no target": _refusals(),
    "expected log likelihoods far out": st.tuples(
        st.sampled_from(sorted(EXPECTATIONS)),
        _POWERS,
        st.sampled_from([-6, -2, 0, 1]),
        st.sampled_from([-1, 1]),
    ).map(_expectation),
}
