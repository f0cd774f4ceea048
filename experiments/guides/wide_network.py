# %% [markdown]
# # A wide network on images, by pCN
#
# In the ntk parametrisation with standard normal weights, pCN keeps the prior exactly. Random-walk
# kernels need ever smaller steps as the network widens. With the read-out integrated exactly
# (`wide.reparametrise`) the posterior of the rest is close to that prior, the closer the wider
# the network, and in the limit every step is accepted (Pezzetti et al.). With 200 images that
# limit is far: the share of accepted steps of 0.1 is lowest at 128 units and three times as large
# at 512. `JAXBNN_SCALE=smoke` makes it short; MNIST is read from `$JAXBNN_DATA`, else downloaded.

# %%
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxbnn
from experiments.datasets import mnist
from jaxbnn.networks import init

SMOKE = os.environ.get("JAXBNN_SCALE") == "smoke"
OUT = Path(os.environ.get("JAXBNN_OUT", "results/guides"))
OUT.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## Images
# Few of them, coarsened to 14 x 14; labels one-hot less 0.1, with Gaussian noise of 0.1: for
# regression on labels the read-out can be integrated out.

# %%
rows, widths = (20, (8, 16)) if SMOKE else (200, (32, 128, 512))
data = mnist()


def prepare(images, labels, number):
    """Return standardised pixels and centred one-hot labels of the first images."""
    coarse = images[:number].reshape(number, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(number, -1)
    x = (coarse.astype(np.float32) - 33.0) / 79.0
    return x, (np.eye(10)[labels[:number]] - 0.1).astype(np.float32)


x, y = prepare(data.x_train, data.y_train, rows)
x_new, y_new = prepare(data.x_test, data.y_test, rows)

# %% [markdown]
# ## The same step at several widths

# %%
chains, samples = (2, 5) if SMOKE else (4, 200)
rates, outputs, spread = [], None, None
for width in widths:
    network = jaxbnn.mlp((196, width, 10), "gelu", parametrisation="ntk")
    keys = jax.random.split(jax.random.key(1), chains)
    starts = jax.vmap(lambda key, of=network: init(key, of))(keys)

    def kernel(_, training, of=network):
        """Return pCN on the reparametrised posterior of these data."""
        target = jaxbnn.wide.reparametrise(of, *training, noise_scale=0.1)
        return jaxbnn.pcn(target.log_likelihood, 0.1)

    draws = jaxbnn.sample(
        jax.random.key(2),
        kernel,
        starts,
        samples,
        thinning=2 if SMOKE else 10,
        num_warmup=5 if SMOKE else 1000,
        data=(x, y),
        progress=False,
    )
    rates.append(float(draws.acceptance_rate.mean()))
    posterior = jaxbnn.wide.reparametrise(network, x, y, noise_scale=0.1)
    predictions = jax.jit(jax.vmap(jax.vmap(lambda p, of=posterior: of.predict(p, x_new))))(
        jax.tree.map(jnp.asarray, draws.positions)
    )
    outputs = np.asarray(predictions).reshape(-1, *predictions.shape[2:])
    right = (outputs.mean(axis=0).argmax(-1) == y_new.argmax(-1)).mean()
    print(f"width {width}: acceptance {rates[-1]:.2f}, {right:.0%} of the test images right")

# %% [markdown]
# ## What the widest network is unsure about
# The share of the draws that name the most frequent digit, smallest first.

# %%
votes = np.stack([(outputs.argmax(-1) == digit).mean(axis=0) for digit in range(10)], axis=-1)
unsure = np.argsort(votes.max(axis=-1))[:5]
figure = plt.figure(figsize=(10, 3.4), layout="constrained")
left, right_part = figure.subfigures(1, 2, width_ratios=(1, 2))
axes = left.subplots()
axes.semilogx(widths, rates, "o-", color="#0072B2")
axes.set(xlabel="width", ylabel="acceptance rate of pCN, step 0.1", ylim=(0, 1))
axes.set_xticks(widths, map(str, widths))
axes.minorticks_off()
for panel, row in zip(right_part.subplots(1, 5), unsure, strict=True):
    panel.imshow(x_new[row].reshape(14, 14), cmap="gray_r")
    panel.set_axis_off()
    first, second = np.argsort(votes[row])[::-1][:2]
    panel.set_title(
        f"{first}: {votes[row, first]:.0%}\n{second}: {votes[row, second]:.0%}", fontsize="medium"
    )
right_part.suptitle("test images that the draws disagree about most")
figure.savefig(OUT / "wide_network.png", dpi=100)
