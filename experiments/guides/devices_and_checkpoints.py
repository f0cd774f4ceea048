# %% [markdown]
# # Many chains on many devices, stopped and resumed
#
# Chains are independent, so they spread over devices without any talk between them; data can be
# spread too. Here a CPU plays eight devices, so that this runs anywhere; where there are GPUs,
# these are the devices, and everything below stays as it is. `JAXBNN_SCALE=smoke` makes it short.

# %%
import os

# JAX counts its devices once, when it is first used, so this comes before everything else.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)

import gc
import math
import tempfile
from collections import Counter
from pathlib import Path

import blackjax
import jax
import matplotlib.pyplot as plt
import numpy as np

import jaxbnn
from jaxbnn.sampling import open_draws

SMOKE = os.environ.get("JAXBNN_SCALE") == "smoke"
OUT = Path(os.environ.get("JAXBNN_OUT", "results/guides"))
OUT.mkdir(parents=True, exist_ok=True)
DEVICES = len(jax.devices())
print(f"{DEVICES} devices: {jax.devices()}")

# %% [markdown]
# ## A posterior
# Data are an argument of `sample` and of the function that makes the kernel, not a constant inside
# it: only so can they be spread. NumPy arrays go to their devices directly.

# %%
rows, chains, samples = (512, 16, 60) if SMOKE else (1024, 32, 500)
rng = np.random.default_rng(0)
x = rng.standard_normal((rows, 2)).astype(np.float32)
y = (np.hypot(*x.T) + 0.3 * rng.standard_normal(rows) > 1.2).astype(np.int32)
network = jaxbnn.mlp((2, 5, 1), activation="tanh")
prior = jaxbnn.normal_prior(network)


def make_kernel(parameters, data):
    """Return HMC on the posterior of the data."""
    posterior = jaxbnn.Posterior(network, prior, jaxbnn.Bernoulli(), *data)
    metric = np.ones(jaxbnn.num_parameters(network), np.float32)
    return blackjax.hmc(posterior.log_density, parameters["step_size"], metric, 2 if SMOKE else 10)


starts = jaxbnn.Posterior(network, prior, jaxbnn.Bernoulli(), x, y).sample_prior(
    jax.random.key(1), (chains,)
)
settings = {
    "num_samples": samples,
    "num_warmup": samples,
    "data": (x, y),
    "parameters": {"step_size": 0.01},
    "adapt": jaxbnn.dual_averaging(0.8),
    "chunk_size": samples // 10,
}

# %% [markdown]
# ## Where the numbers lie
# `mesh=` names the devices: chains go along its axis "chain", rows of data along "data". Between
# two chunks we ask JAX what each device holds: states, data and the chunk's draws.


# %%
def held_by_devices():
    """Return the bytes of live arrays on each device."""
    gc.collect()
    held = Counter()
    for array in jax.live_arrays():
        part = array.sharding.shard_shape(array.shape)
        for device in array.sharding.device_set:
            held[device.id] += math.prod(part) * array.dtype.itemsize
    return np.array([held[device.id] for device in jax.devices()])


meshes = {
    "one device": jax.make_mesh((1,), ("chain",), devices=jax.devices()[:1]),
    f"chains over {DEVICES}": jax.make_mesh((DEVICES,), ("chain",)),
}
if DEVICES % 2 == 0:
    meshes[f"chains over {DEVICES // 2}, rows over 2"] = jax.make_mesh(
        (DEVICES // 2, 2), ("chain", "data")
    )
memory, drawn = {}, {}
for name, mesh in meshes.items():
    seen, before = [], held_by_devices()
    drawn[name] = jaxbnn.sample(
        jax.random.key(2),
        make_kernel,
        starts,
        **settings,
        mesh=mesh,
        progress=lambda progress, seen=seen: seen.append(held_by_devices()),
    )
    # Less what was there before this run: the starts, and the final states of the runs before it.
    memory[name] = np.max(seen, axis=0) - before
    print(f"{name}: {np.array2string(memory[name] / 1024, precision=0)} KiB on the devices")

# %% [markdown]
# The key of chain c at step t is folded from (key, c, t), whatever the mesh. So all runs drew from
# the same random numbers, and a step differs by rounding alone; but a chain blows rounding up, as
# chaotic motion does. Compare averages, not late draws.

# %%
first, *others = drawn.values()
for name, other in zip(list(drawn)[1:], others, strict=True):
    gap = np.abs(first.acceptance_rate.mean() - other.acceptance_rate.mean())
    print(f"{name}: the mean acceptance rate differs by {gap:.2g} from that on one device")

# %% [markdown]
# ## Stop, and resume
# With `checkpoint=` every finished chunk is in a file before the next one begins. A Ctrl-C after
# four chunks of sampling (here raised where progress is told; `kill -9` does no more harm) leaves a
# folder that can be read at once, also while a run goes on.

# %%
mesh = meshes[f"chains over {DEVICES}"]
folder = Path(tempfile.mkdtemp()) / "run"


def stop_after_four_chunks(progress):
    """Be the user's Ctrl-C."""
    if progress.phase == "sampling" and progress.done >= 0.4 * progress.total:
        raise KeyboardInterrupt


def go_on(progress):
    """Run, or go on with, the run of the folder."""
    return jaxbnn.sample(
        jax.random.key(2),
        make_kernel,
        starts,
        **settings,
        mesh=mesh,
        checkpoint=folder,
        lazy=True,
        progress=progress,
    )


go_on(stop_after_four_chunks)
part = open_draws(folder)
stopped = len(part.steps)
print(f"stopped: {part.interrupted}, with {stopped} of {samples} draws of each chain")

# %% [markdown]
# The same call goes on where it stopped. `lazy=True` leaves the draws in the files: a
# leaf is read where it is indexed, so that the host's memory need not hold them all.

# %%
resumed = go_on(False)
weights = resumed.positions[0]["w"]
print(weights)
print(f"the last ten draws of chain 0 alone: {weights[0, -10:].shape}")
print(f"on disk: {sum(file.stat().st_size for file in folder.rglob('*')) / 1024:.0f} KiB")

# %% [markdown]
# Stopped and resumed, or never stopped: the same numbers, bit for bit.

# %%
whole = drawn[f"chains over {DEVICES}"]
pairs = zip(jax.tree.leaves(whole.positions), jax.tree.leaves(resumed.positions), strict=True)
identical = all(np.array_equal(a, np.asarray(b)) for a, b in pairs)
print(f"identical to the run that was not stopped: {identical}")
assert identical

# %% [markdown]
# ## Pictures
# Left, what the chains predict at one input, and where the run was stopped: nothing shows there.
# Right, what the devices held.

# %%
probe = np.array([[1.2, 0.0]], np.float32)
outputs = jaxbnn.diagnostics.evaluate(
    lambda params: network.apply(params, probe)[0, 0], jax.tree.map(np.asarray, resumed.positions)
)
print(jaxbnn.summary(outputs))
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
shown = [k * chains // min(4, DEVICES) for k in range(min(4, DEVICES))]
for chain, color in zip(shown, ("#0072B2", "#D55E00", "#009E73", "#CC79A7"), strict=False):
    label = f"chain {chain}, device {chain * DEVICES // chains}"
    left.plot(outputs[chain], color=color, lw=0.6, label=label)
left.axvline(stopped, color="black", ls="--", label="stopped, resumed")
left.set(xlabel="draw", ylabel="logit of the outer class at (1.2, 0)")
figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=5)
width = 0.8 / len(memory)
for k, (name, held) in enumerate(memory.items()):
    place = np.arange(DEVICES) + (k - 1) * width
    right.bar(place, held / 1024, width, label=name, color=("#56B4E9", "#0072B2", "#E69F00")[k])
right.set(xlabel="device", ylabel="held during the run, KiB", xticks=range(DEVICES))
right.set_ylim(0, 1.35 * right.get_ylim()[1])  # room for the legend
right.legend(fontsize="small")
figure.savefig(OUT / "devices_and_checkpoints.png", dpi=100)
