"""What of a NumPyro model is sampled, where it does more than sample."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.contrib.control_flow import scan

import jaxbnn
from jaxbnn.interop.numpyro import posterior_from_numpyro

TITLE = "NumPyro models with subsampled plates, masks, improper priors, scans, static arguments"
Y = 4 + np.random.default_rng(0).normal(size=80).astype(np.float32)


def measure():
    """Sample each model whose posterior of the mean is known, or tell how it is refused."""
    exact = Y.sum() / (1 + len(Y))
    rows = [("posterior mean in closed form", f"{exact:.2f} +- {(1 + len(Y)) ** -0.5:.2f}")]
    cases = {
        "whole data": _whole,
        "a plate that takes 20 of 80 rows": _minibatch,
        "own minibatch by prng_key": _own_minibatch,
        "numpyro.param as the noise scale": _param,
        "a latent site that is masked": _masked,
        "an observation that is NaN": _not_a_number,
        "a Poisson count of -1": _impossible,
        "a site given by handlers.substitute": handlers.substitute(_whole, data={"m": 0.0}),
        "an improper prior": _improper,
        "a scan": _scan,
    }
    rows += [(name, _told(lambda m=model: _mean(m))) for name, model in cases.items()]
    rows.append(("a static argument, under jit", _told(_static)))
    return rows


def _told(function):
    try:
        return function()
    except ValueError as error:
        return f"refused: {error}" if str(error) else "failed: ValueError"
    except Exception as error:
        return f"failed: {type(error).__name__}"


def _mean(model):
    posterior = posterior_from_numpyro(model, Y)
    kernel = jaxbnn.underdamped_langevin(posterior.log_density, 0.1, 1.0)
    starts = {"m": jnp.full(4, 3.0)}
    draws = jaxbnn.sample(jax.random.key(0), kernel, starts, 1000, num_warmup=200, progress=False)
    values = draws.positions["m"]
    return f"{values.mean():.2f} +- {values.std():.2f}"


def _static():
    def model(y, depth):
        m = numpyro.sample("m", dist.Normal(0.0, 1.0))
        for _ in range(depth):
            m = m / 1.0
        numpyro.sample("y", dist.Normal(m, 1.0), obs=y)

    posterior = posterior_from_numpyro(model, Y, 2)
    value = jax.jit(lambda target, u: target.log_density(u))(posterior, {"m": jnp.array(0.0)})
    return f"log density {value:.1f}"


def _observe(mean, y):
    numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def _m():
    return numpyro.sample("m", dist.Normal(0.0, 1.0))


def _whole(y):
    _observe(_m(), y)


def _minibatch(y):
    m = _m()
    with numpyro.plate("data", len(y), subsample_size=20) as rows:
        _observe(m, jnp.asarray(y)[rows])


def _own_minibatch(y):
    m = _m()
    rows = jax.random.choice(numpyro.prng_key(), len(y), (20,), replace=False)
    with handlers.scale(scale=4.0):
        _observe(m, jnp.asarray(y)[rows])


def _param(y):
    m, scale = _m(), numpyro.param("scale", lambda key: jax.random.uniform(key) + 0.5)
    numpyro.sample("y", dist.Normal(m, scale), obs=y)


def _masked(y):
    with handlers.mask(mask=False):
        m = _m()
    _observe(m, y)


def _not_a_number(y):
    _observe(_m(), jnp.asarray(y).at[0].set(jnp.nan))


def _impossible(y):
    numpyro.sample("y", dist.Poisson(jnp.exp(_m())), obs=jnp.array([3, -1]))


def _improper(y):
    m = numpyro.sample("m", dist.ImproperUniform(dist.constraints.real, (), ()))
    _observe(m, y)


def _scan(y):
    def step(carry, y_now):
        _observe(carry, y_now)
        return carry, None

    scan(step, _m(), y)
