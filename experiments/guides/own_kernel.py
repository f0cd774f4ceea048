# %% [markdown]
# # A kernel of your own, composed with others
#
# A kernel is a pair of functions, `init(position) -> state` and `step(key, state) -> (state,
# info)`.
# Here is one that the library does not have: it stretches a whole layer. It is a dozen lines long,
# composes with BlackJAX's MALA, and is judged like all others. Run it as a script, or cell by cell;
# `JAXBNN_SCALE=smoke` makes it short.

# %%
import os
from pathlib import Path
from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from blackjax.base import SamplingAlgorithm

import jaxbnn
from jaxbnn.kernels import metropolis

SMOKE = os.environ.get("JAXBNN_SCALE") == "smoke"
OUT = Path(os.environ.get("JAXBNN_OUT", "results/guides"))
OUT.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## Data and posterior
# Two classes, one inside the other.

# %%
x = jax.random.normal(jax.random.key(0), (100, 2))
y = (jnp.sum(x**2, axis=1) > 1.4).astype(jnp.int32)
network = jaxbnn.mlp((2, 8, 1), activation="tanh")
posterior = jaxbnn.Posterior(network, jaxbnn.normal_prior(network), jaxbnn.Bernoulli(), x, y)

# %% [markdown]
# ## The kernel
# Propose v = exp(s xi) u, with xi standard normal. The way back is as likely in xi, but volumes
# are stretched by exp(s xi) in each of the d dimensions, so that the ratio of Metropolis is
#
#     log pi(v) - log pi(u) + d s xi.
#
# Forget the last term and the layers shrink, slowly and silently: the reason why each kernel in
# the library is tested against exact draws.


# %%
class StretchState(NamedTuple):
    """The position, and what would otherwise be computed twice.

    In a composition, all but the position is computed anew when another kernel has moved it, save
    for the fields named in `auxiliary`: here none is the kernel's own.
    """

    position: object
    log_density: jax.Array
    auxiliary = ()


def stretch(log_density_fn, scale):
    """Multiply everything by one random factor."""

    def init(position, rng_key=None):
        return StretchState(position, log_density_fn(position))

    def step(rng_key, state):
        key_proposal, key_accept = jax.random.split(rng_key)
        log_factor = scale * jax.random.normal(key_proposal)
        proposal = init(jax.tree.map(lambda leaf: jnp.exp(log_factor) * leaf, state.position))
        dimension = sum(leaf.size for leaf in jax.tree.leaves(state.position))
        log_ratio = proposal.log_density - state.log_density + dimension * log_factor
        return metropolis(key_accept, log_ratio, state, proposal)

    return SamplingAlgorithm(init, step)


# %% [markdown]
# ## Composition
# `on_block` applies it to the layer at index 2, the read-out, given the rest; `cycle` alternates it
# with MALA on everything, and computes anew what one kernel had cached before the other one moved.

# %%
everything = blackjax.mala(posterior.log_density, 0.01)
read_out = jaxbnn.on_block(
    lambda whole: stretch(lambda layer: posterior.log_density(whole(layer)), 0.3), block=2
)
kernel = jaxbnn.cycle(jaxbnn.repeat(everything, 10), read_out)
starts = posterior.sample_prior(jax.random.key(1), (4,))
draws = jaxbnn.sample(
    jax.random.key(2),
    kernel,
    starts,
    num_samples=50 if SMOKE else 2000,
    num_warmup=20 if SMOKE else 500,
    progress=False,
)

# %% [markdown]
# ## Is it to be believed?
# Weights have copies by symmetry; predictions have none. So look at R-hat of what is predicted.

# %%
probes = x[:5]
table = jaxbnn.summary(draws.positions, function=lambda p: network.apply(p, probes))
print(table)

# %%
side = np.linspace(-3, 3, 15 if SMOKE else 60)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2).astype(np.float32)
predicted = jaxbnn.predict(draws, grid, posterior)
shape = (len(side), len(side))
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
panels = (
    (left, predicted.probabilities[:, 1], "probability of the outer class"),
    (right, predicted.epistemic, "what the draws disagree about, nats"),
)
for axes, values, title in panels:
    image = axes.pcolormesh(side, side, values.reshape(shape), cmap="cividis")
    figure.colorbar(image, ax=axes)
    axes.scatter(*x[y == 0].T, s=14, c="white", edgecolors="black", label="inner")
    axes.scatter(*x[y == 1].T, s=14, c="black", edgecolors="white", label="outer")
    axes.set(title=title, xlabel="x1", ylabel="x2")
left.legend(loc="upper left", framealpha=0.9)
figure.savefig(OUT / "own_kernel.png", dpi=100)
