# %% [markdown]
# # Deterministic variational inference against MCMC
#
# DVI fits one Gaussian to the weights by propagating moments: seconds, whatever the number of
# data. NUTS draws from the posterior itself. Where do they differ? Between the data, as a rule:
# one Gaussian sits at one way of fitting them. `JAXBNN_SCALE=smoke` makes it short.

# %%
import os
from pathlib import Path

import blackjax
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import jaxbnn

SMOKE = os.environ.get("JAXBNN_SCALE") == "smoke"
OUT = Path(os.environ.get("JAXBNN_OUT", "results/guides"))
OUT.mkdir(parents=True, exist_ok=True)
NOISE = 0.1

# %% [markdown]
# ## Data with a gap in the middle

# %%
rng = np.random.default_rng(0)
x = np.concatenate([rng.uniform(-2, -0.7, 30), rng.uniform(0.7, 2, 30)]).astype(np.float32)
y = (np.sin(2 * x) + NOISE * rng.standard_normal(60)).astype(np.float32)
x = x[:, None]
network = jaxbnn.mlp((1, 20, 1), activation="relu")
prior = jaxbnn.normal_prior(network, weight_precision=[0.25, 5.0])
posterior = jaxbnn.Posterior(network, prior, jaxbnn.Gaussian(NOISE), x, y)

# %% [markdown]
# ## NUTS
# Step size and mass matrix are tuned in warm-up, of all chains together.

# %%
warmup, samples, chains = (20, 20, 2) if SMOKE else (1000, 500, 4)
starts = posterior.sample_prior(jax.random.key(1), (chains,))
size = jaxbnn.num_parameters(network)


def nuts(parameters, data):
    """Return BlackJAX's NUTS with the parameters that the warm-up tunes."""
    return blackjax.nuts(
        data.log_density,
        parameters["step_size"],
        parameters["inverse_mass_matrix"],
        max_num_doublings=4 if SMOKE else 8,
    )


draws = jaxbnn.sample(
    jax.random.key(2),
    nuts,
    starts,
    samples,
    num_warmup=warmup,
    data=posterior,
    parameters={"step_size": 0.02, "inverse_mass_matrix": jnp.ones((chains, size))},
    adapt=jaxbnn.window_adaptation(warmup, is_pooled=True),
    progress=False,
)
print(jaxbnn.summary(draws.positions, function=lambda p: network.apply(p, jnp.asarray(x[::10]))))

# %% [markdown]
# ## DVI
# The same posterior, prior and noise.

# %%
updates = 50 if SMOKE else 5000
vi = jaxbnn.deterministic_vi(
    network,
    posterior.likelihood,
    posterior.prior,
    optimizer=optax.adam(optax.cosine_decay_schedule(1e-2, updates)),
)
start = jaxbnn.dvi.initial_position(
    jax.random.key(3), network, variance=1e-2, shape=(1,), dtype=jnp.float32
)
fit = jaxbnn.dvi.fit(jax.random.key(4), vi, start, x, posterior.y, updates, progress=False)
state = jax.tree.map(lambda leaf: leaf[0], fit.states)
gaussian = vi.sample(jax.random.key(5), state, chains * samples)
gaussian = jax.tree.map(lambda leaf: leaf[None], gaussian)

# %% [markdown]
# ## What they predict
# The band is the central 90 % of the predictive distribution. Held-out scores judge both.

# %%
line = np.linspace(-3, 3, 20 if SMOKE else 150, dtype=np.float32)[:, None]
x_new = rng.uniform(-2, 2, (200, 1)).astype(np.float32)
y_new = (np.sin(2 * x_new[:, 0]) + NOISE * rng.standard_normal(200)).astype(np.float32)
figure, panels = plt.subplots(1, 2, figsize=(10, 3.8), sharey=True, layout="constrained")
for axes, name, positions in zip(panels, ("NUTS", "DVI"), (draws.positions, gaussian), strict=True):
    band = jaxbnn.predict(positions, line, posterior)
    score = jaxbnn.scores(positions, x_new, y_new, posterior).log_score
    error = score.std() / len(score) ** 0.5
    print(f"{name}: held-out log score {score.mean():.3f} +- {error:.3f} nats a datum")
    axes.fill_between(line[:, 0], band.lower, band.upper, color="#56B4E9", alpha=0.5, label="90 %")
    axes.plot(line, band.mean, color="#0072B2", label="mean")
    axes.plot(line, np.sin(2 * line), "--", color="#D55E00", label="truth")
    axes.plot(x, y, ".", color="black", markersize=4, label="data")
    axes.set(title=name, xlabel="x", ylim=(-4, 4))
panels[0].set_ylabel("y")
panels[0].legend(loc="lower left", ncols=2, framealpha=0.9)
figure.savefig(OUT / "dvi_against_mcmc.png", dpi=100)
