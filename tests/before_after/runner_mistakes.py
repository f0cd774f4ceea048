"""What the runner says to mistakes in its arguments."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.base import SamplingAlgorithm

import jaxbnn
from jaxbnn.networks import mlp

TITLE = "mistakes in the arguments of `sample`"
KEY, STARTS = jax.random.key(0), np.zeros((3, 2), np.float32)
KERNEL = blackjax.mala(lambda x: -jnp.sum(x**2) / 2, 0.5)


def measure():
    half = lambda key, s: (s._replace(logdensity=s.logdensity.astype(jnp.float16)), None)  # noqa: E731
    calls = {
        "a kernel that is a tuple": lambda: _sample((KERNEL.init, KERNEL.step)),
        "`init` with one argument": lambda: _sample(
            SamplingAlgorithm(lambda x: KERNEL.init(x), KERNEL.step)
        ),
        "a state without `.position`": lambda: _sample(
            SamplingAlgorithm(lambda x, rng_key=None: (x,), lambda key, s: (s, None))
        ),
        "an int as key": lambda: _sample(key=0),
        "`jit` around `sample`": lambda: jax.jit(lambda key: _sample(key=key).positions)(KEY),
        "a dtype that drifts": lambda: _sample(SamplingAlgorithm(KERNEL.init, half)),
        "`jnp.zeros(5)` as the positions of a Posterior": lambda: _of_posterior(),
        "`jnp.zeros(5)` as the positions of a target of one number": lambda: repr(
            _sample(positions=jnp.zeros(5))
        )[:60],
    }
    return [(name, _said(call)) for name, call in calls.items()]


def _sample(kernel=KERNEL, key=KEY, positions=STARTS, **options):
    return jaxbnn.sample(key, kernel, positions, 3, progress=False, **options)


def _of_posterior():
    x = np.ones((4, 2), np.float32)
    network = mlp((2, 1))
    prior = jaxbnn.normal_prior(network)
    gaussian = getattr(jaxbnn, "Gaussian", None) or jaxbnn.gaussian  # its name before
    data = jaxbnn.Posterior(network, prior, gaussian(1.0), x, x[:, :1])
    make_kernel = lambda p, d: blackjax.mala(d.log_density, 0.5)  # noqa: E731
    return _sample(make_kernel, positions=jnp.zeros(5), data=data)


def _said(call):
    try:
        return str(call()).replace("\n", " ")
    except ValueError as error:
        return f"refused: {error}"
    except Exception as error:
        return f"failed: {type(error).__name__}"
