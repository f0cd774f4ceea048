"""The joint test of Geweke (2004): data | parameters and parameters | data agree.

Both conditionals of one joint law, applied in turn to an exact joint draw, leave it an exact
joint draw. Every chain starts at its own draw and the chains are independent, so the
false-alarm rate is exact. An error in either conditional, or in the pair, shows.
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from tests.kit.dkw import Comparison
from tests.kit.exact_start import flat, joint_functions
from tests.kit.simulate import check_chains, has_moved


def check_geweke(
    sample_joint: Callable,
    data_given_parameters: Callable,
    parameters_given_data: Callable,
    *,
    rounds: int,
    test_functions: Callable | None = None,
    cdfs: Mapping[str, Callable] | None = None,
    num_chains: int | None = None,
    seed: int = 0,
    batch_size: int = 50_000,
) -> Comparison:
    """Alternate the two conditionals and compare with exact joint draws.

    Parameters
    ----------
    sample_joint
        sample_joint(key) -> (parameters, data), exact: parameters from the prior, data from
        the model.
    data_given_parameters
        data_given_parameters(key, parameters) -> data.
    parameters_given_data
        parameters_given_data(key, parameters, data) -> parameters: a Gibbs conditional, a
        sweep of them, or a Metropolis kernel (see `update_with`).
    rounds
        How often both are applied: data first, parameters last. A wrong conditional is the more
        visible the more rounds there are.
    test_functions
        test_functions(parameters, data) -> dict of scalars; by default all coordinates,
        products of neighbours and of parameters with data.
    cdfs
        Exact distribution functions (NumPy) of those that have one.
    num_chains, seed, batch_size
        As in `check_exact_start`.
    """

    def chain(key):
        key_start, key_rounds = jax.random.split(key)
        parameters, data = sample_joint(key_start)

        def one_round(i, joint):
            key_data, key_parameters = jax.random.split(jax.random.fold_in(key_rounds, i))
            parameters, _ = joint
            data = data_given_parameters(key_data, parameters)
            return parameters_given_data(key_parameters, parameters, data), data

        end = jax.lax.fori_loop(0, rounds, one_round, (parameters, data))
        return end, has_moved(parameters, end[0])

    return check_chains(
        chain,
        sample_joint,
        _coordinates if test_functions is None else test_functions,
        {} if cdfs is None else cdfs,
        num_chains,
        seed,
        batch_size,
    )


def update_with(make_kernel: Callable, steps: int = 1) -> Callable:
    """Return parameters_given_data(key, parameters, data): steps of make_kernel(data)."""

    def update(key, parameters, data):
        kernel = make_kernel(data)
        key_init, key_steps = jax.random.split(key)

        def step(i, state):
            return kernel.step(jax.random.fold_in(key_steps, i), state)[0]

        return jax.lax.fori_loop(0, steps, step, kernel.init(parameters, key_init)).position

    return update


def _coordinates(parameters, data) -> dict:
    zero = jnp.zeros(())
    functions = joint_functions(parameters, data, zero, zero)
    for name in ("log prior", "log likelihood"):
        del functions[name]
    y = flat(data)
    functions |= {f"y{i}": y[i] for i in range(len(y))}
    return functions | {f"y{i} y{i + 1}": y[i] * y[i + 1] for i in range(len(y) - 1)}
