"""What a kernel is given, checked where it enters: one sentence that says what to write."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jaxtyping import ArrayLike

from jaxbnn.networks import Network
from jaxbnn.numerics import check_positive, checks
from jaxbnn.numerics.arguments import a_or_an, check_function, check_key
from jaxbnn.numerics.checks import check_float


def check_kernel(name: str, kernel: Any) -> None:
    """Raise TypeError unless `kernel`, called `name`, has the functions `init` and `step`."""
    if callable(getattr(kernel, "init", None)) and callable(getattr(kernel, "step", None)):
        return
    advice = "give what a factory returns, as pcn(log_likelihood, 0.1)"
    if isinstance(kernel, tuple) and len(kernel) == 2:
        advice = "write blackjax.base.SamplingAlgorithm(init, step)"
    elif callable(kernel):
        advice = "call it, and give the kernel that it returns"
    raise TypeError(
        f"{name} must be a kernel, a pair of init and step, but is {a_or_an(kernel)}; {advice}."
    )


def check_kernels(name: str, kernels: Sequence[Any], advice: str) -> None:
    """Raise unless `kernels`, the components of the combinator `name`, are one kernel or more."""
    if not kernels:
        raise ValueError(f"{name} needs at least one kernel.")
    for number, kernel in enumerate(kernels):
        if isinstance(kernel, list) or callable(kernel):
            raise TypeError(f"{name} takes kernels, but was given {a_or_an(kernel)}; {advice}.")
        check_kernel(f"kernel {number} of {name}", kernel)


def check_listed(name: str, kernels: Any, advice: str) -> None:
    """Raise TypeError unless `kernels` is a list or a tuple, which a kernel by itself is too."""
    if not isinstance(kernels, list | tuple):
        raise TypeError(f"{name} must be a list of kernels, but is {a_or_an(kernels)}; {advice}.")


def check_network(name: str, network: Any) -> None:
    """Raise TypeError unless `network` is one of ours, whose layers the kernel `name` reads."""
    if isinstance(network, Network):
        return
    advice = f"write {name}(network, prior) with a network of jaxbnn.mlp or jaxbnn.Network"
    is_other_network = callable(network) or hasattr(network, "apply")
    if is_other_network and not hasattr(network, "log_prob"):
        advice = f"{name} reads a Network's layers, so leave it out for other networks"
    raise TypeError(f"network must be a jaxbnn.Network, but is {a_or_an(network)}; {advice}.")


def check_step(rng_key: Any, state: Any) -> None:
    """Raise TypeError unless a step is given a key and a state. Costs nothing once traced."""
    check_key("rng_key", rng_key, "write step(rng_key, state)")
    if not hasattr(state, "position"):
        raise TypeError(
            f"state must be what init or step returned, but is {a_or_an(state)}; start with "
            "kernel.init(position)."
        )


def check_log_likelihood_fn(function: Any) -> None:
    """Raise TypeError unless it can be called."""
    advice = "give position -> log-likelihood terms, as posterior.log_likelihood"
    check_function("log_likelihood_fn", function, advice)


def check_log_density_fn(function: Any) -> None:
    """Raise TypeError unless it can be called."""
    advice = "give position -> log density, as posterior.log_density"
    check_function("log_density_fn", function, advice)


def check_bits(name: str, matrix: Any) -> None:
    """Raise TypeError if a matrix has fewer bits than a factorisation takes; costs nothing traced.

    Whole numbers are factored as floats.
    """
    if jnp.issubdtype(jnp.result_type(matrix), jnp.floating):
        check_float(name, matrix)


def check_one_number(name: str, value: ArrayLike) -> None:
    """Raise unless `value` is a single real number; a traced one may be anything else."""
    checks.check_one_number(
        name, value, "chains get their own through the parameters of jaxbnn.sample"
    )


def check_positive_number(
    name: str, value: ArrayLike, advice: str = "give a positive number"
) -> None:
    """Raise unless `value` is a single positive number; a traced one may be anything else."""
    check_one_number(name, value)
    check_positive(name, value, advice)


def check_step_size(value: ArrayLike) -> None:
    """Raise unless the step size is one positive number."""
    check_positive_number("step_size", value)
