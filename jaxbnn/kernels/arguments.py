"""What a kernel is given, checked where it enters: one sentence that says what to write."""

from collections.abc import Sequence
from typing import Any

from jaxbnn.networks import Network
from jaxbnn.numerics.checks import a_or_an


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


def check_network(name: str, network: Any) -> None:
    """Raise TypeError unless `network` is one of ours, whose layers `name` can look at."""
    if isinstance(network, Network):
        return
    advice = "write jaxbnn.Network or jaxbnn.mlp"
    if callable(network) or hasattr(network, "apply"):
        advice = f"{name} reads the layers of jaxbnn.Network, and leaves out other networks"
    raise TypeError(f"network must be a jaxbnn.Network, but is {a_or_an(network)}; {advice}.")
