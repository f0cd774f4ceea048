# %% [markdown]
# # Is my sampler thermalized? The teacher-student test
#
# Draw a teacher's weights from the prior and data from its network: the teacher is then an exact
# draw of the posterior given these data. A chain that starts at the teacher is in equilibrium from
# the first step on. A chain that starts elsewhere has reached it when its test error is that of
# the informed one (Piccioli et al.). `JAXBNN_SCALE=smoke` makes it short.

# %%
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxbnn
from jaxbnn.plots import thermalization_criteria
from jaxbnn.thermalization import compare, mean_squared_error, teacher_student

SMOKE = os.environ.get("JAXBNN_SCALE") == "smoke"
OUT = Path(os.environ.get("JAXBNN_OUT", "results/guides"))
OUT.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## Model, teacher, data
# The intermediate-noise model: a little Gaussian noise at each pre- and post-activation, so that
# the Gibbs sampler knows every conditional exactly.

# %%
inputs, hidden, rows = (3, 2, 20) if SMOKE else (20, 5, 400)
network = jaxbnn.mlp((inputs, hidden, 1), activation="relu")
model = jaxbnn.IntermediateNoise(network, 0.01, weight_precision=(inputs, hidden))
experiment = teacher_student(jax.random.key(0), model, rows, rows)
names = list(experiment.positions)
starts = jax.tree.map(lambda *leaves: jnp.stack(leaves), *experiment.positions.values())

# %% [markdown]
# ## One chain from each start
# All chains run side by side; of each kept sweep only the test error is stored.


# %%
def test_error(state, info):
    """Return the error of the current weights on rows that the sampler does not see."""
    params = state.position.params
    return mean_squared_error(network, params, experiment.x_test, experiment.f_test)


last, records = (400, 200) if SMOKE else (20_000, 400)
steps = np.unique(np.geomspace(1, last, records).astype(int))
draws = jaxbnn.sample(
    jax.random.key(1),
    lambda _, data: jaxbnn.gibbs_sampler(model, *data),
    starts,
    len(steps),
    data=(experiment.x, experiment.y),
    thinning=steps,
    collect=test_error,
    progress=False,
)
errors = dict(zip(names, np.asarray(draws.positions), strict=True))

# %% [markdown]
# ## The verdict
# Every criterion gives a lower bound of the time that the chain needs; the largest is the one to
# believe.

# %%
found = compare(draws.steps, errors)
print(found)
bounds = {
    f"{e.chains[0]} has merged": (float(max(e.lower_bound, 1)), bool(e.is_passed))
    for e in found.estimates
    if e.criterion == "teacher-student"
}
axes = thermalization_criteria(draws.steps, errors, lower_bounds=bounds)
np.ravel(axes)[0].figure.savefig(OUT / "thermalized.png", dpi=100)
