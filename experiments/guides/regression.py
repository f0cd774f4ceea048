# %% [markdown]
# # Regression with uncertainty: four samplers on one data set
#
# The resistance of sailing yachts from six numbers (UCI, 308 rows). The same network, prior and
# noise, sampled by NUTS, pCN and Gibbs, and approximated by DVI; then scores on held-out rows, and
# whether the intervals hold what they promise. `JAXBNN_SCALE=smoke` makes it short; the data
# are read from `$JAXBNN_DATA`, else downloaded.

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
from experiments.datasets import uci
from jaxbnn.plots import calibration
from jaxbnn.prediction import coverage

SMOKE = os.environ.get("JAXBNN_SCALE") == "smoke"
OUT = Path(os.environ.get("JAXBNN_OUT", "results/guides"))
OUT.mkdir(parents=True, exist_ok=True)
NOISE = 0.1

# %% [markdown]
# ## Data, network, posterior
# Everything is standardised by the training part; the noise is a tenth of the spread of y.

# %%
split = uci("yacht", 0)
x_mean, x_sd = split.x_train.mean(axis=0), split.x_train.std(axis=0)
y_mean, y_sd = split.y_train.mean(), split.y_train.std()
x, x_new = (((part - x_mean) / x_sd).astype(np.float32) for part in (split.x_train, split.x_test))
y, y_new = (((part - y_mean) / y_sd).astype(np.float32) for part in (split.y_train, split.y_test))
hidden = 4 if SMOKE else 20
precision = [x.shape[1] / 4, float(hidden)]
network = jaxbnn.mlp((x.shape[1], hidden, 1), "relu")
prior = jaxbnn.normal_prior(network, weight_precision=precision)
posterior = jaxbnn.Posterior(network, prior, jaxbnn.Gaussian(NOISE), x, y)

chains, warmup, samples = (2, 20, 10) if SMOKE else (4, 500, 250)
starts = posterior.sample_prior(jax.random.key(0), (chains,))
positions = {}

# %% [markdown]
# ## NUTS: gradients, tuned in warm-up


# %%
def nuts(parameters, target):
    """Return BlackJAX's NUTS with what the warm-up tunes."""
    origin = jax.tree.map(jnp.zeros_like, jax.tree.map(lambda leaf: leaf[0], starts))
    return blackjax.nuts(
        target.log_density_from(origin),
        parameters["step_size"],
        parameters["inverse_mass_matrix"],
        max_num_doublings=4 if SMOKE else 7,
    )


positions["NUTS"] = jaxbnn.sample(
    jax.random.key(1),
    nuts,
    starts,
    samples,
    num_warmup=warmup,
    data=posterior,
    parameters={
        "step_size": 0.02,
        "inverse_mass_matrix": jnp.ones((chains, jaxbnn.num_parameters(network))),
    },
    adapt=jaxbnn.window_adaptation(warmup, is_pooled=True),
    progress=False,
).positions

# %% [markdown]
# ## pCN: no gradients
# Its steps keep the prior, so it is told the prior's variances.

# %%
variance = tuple(
    {"w": 1 / precision[i // 2], "b": 1.0} if layer else () for i, layer in enumerate(starts)
)
positions["pCN"] = jaxbnn.sample(
    jax.random.key(2),
    lambda parameters, target: jaxbnn.pcn(target.log_likelihood, parameters["step_size"], variance),
    starts,
    samples,
    thinning=2 if SMOKE else 100,
    num_warmup=warmup if SMOKE else 100 * warmup,
    data=posterior,
    parameters={"step_size": 0.02},
    adapt=jaxbnn.dual_averaging(0.25),
    progress=False,
).positions

# %% [markdown]
# ## Gibbs: no step size at all
# Its model has noise at the hidden units too, here little of it: nearly the same posterior.

# %%
model = jaxbnn.IntermediateNoise(network, [1e-3, 1e-3, NOISE**2], weight_precision=precision)
positions["Gibbs"] = jaxbnn.sample(
    jax.random.key(3),
    lambda _, rows: jaxbnn.gibbs_sampler(model, *rows),
    jax.vmap(lambda key: model.random_position(key, x, y))(
        jax.random.split(jax.random.key(4), chains)
    ),
    samples,
    thinning=2 if SMOKE else 40,
    num_warmup=warmup if SMOKE else 40 * warmup,
    data=(x, y),
    collect=lambda state, info: state.position.params,
    progress=False,
).positions

# %% [markdown]
# ## DVI: one Gaussian, fitted

# %%
updates = 50 if SMOKE else 5000
vi = jaxbnn.deterministic_vi(
    network,
    posterior.likelihood,
    posterior.prior,
    optimizer=optax.adam(optax.cosine_decay_schedule(1e-2, updates)),
)
start = jaxbnn.dvi.initial_position(
    jax.random.key(5), network, variance=1e-2, shape=(1,), dtype=jnp.float32
)
fit = jaxbnn.dvi.fit(jax.random.key(6), vi, start, x, posterior.y, updates, progress=False)
gaussian = vi.sample(
    jax.random.key(7), jax.tree.map(lambda leaf: leaf[0], fit.states), chains * samples
)
positions["DVI"] = jax.tree.map(lambda leaf: leaf[None], gaussian)

# %% [markdown]
# ## Which to believe?
# R-hat of the predictions comes first: scores of chains that have not settled are those of the
# start, not of the posterior. DVI has no chains, and no such check.

# %%
figure, panels = plt.subplots(1, 4, figsize=(14, 3.8), layout="constrained")
levels = np.linspace(0.1, 0.9, 9)
probes = jnp.asarray(x_new[:5])
for axes, (name, draws) in zip(panels, positions.items(), strict=True):
    found = jaxbnn.scores(draws, x_new, y_new, posterior)
    rmse = float(np.sqrt(np.mean(found.error**2)) * y_sd)
    score = found.log_score - np.log(y_sd)
    rhat = ""
    if name != "DVI":
        table = jaxbnn.summary(draws, function=lambda p: network.apply(p, probes))
        rhat = f", R-hat {np.max(table.rhat):.2f}"
    error = score.std() / len(score) ** 0.5
    print(f"{name}: RMSE {rmse:.3g}, log score {score.mean():.2f} +- {error:.2f}{rhat}")
    covered = coverage(found.pit, levels)
    calibration(levels, covered, axes, counts=np.full(len(levels), len(y_new)))
    axes.set_title(f"{name}{rhat}\nRMSE {rmse:.2f}", fontsize="medium")
figure.savefig(OUT / "regression.png", dpi=100)
