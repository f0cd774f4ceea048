"""How a position looks that holds more than the network's parameters, and its shapes."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jaxtyping import PyTree

from jaxbnn.networks import Network, parameter_shapes
from jaxbnn.targets.likelihoods import Likelihood
from jaxbnn.targets.prior_trees import JointPrior, prior_shapes


def part_names(prior: PyTree, likelihood: Likelihood) -> tuple[str, ...]:
    """Return the names of the parts of a position; none where it is the network's parameters.

    Examples
    --------
    >>> from jaxbnn.targets import LearnedGaussian
    >>> part_names(None, LearnedGaussian())
    ('network', 'log_noise_scale')
    """
    if isinstance(prior, JointPrior):
        return tuple(prior.names)
    return ("network", *likelihood.learned) if likelihood.learned else ()


def whose_parts(prior: PyTree, likelihood: Likelihood) -> str:
    """Return for whose sake a position has parts."""
    return "this prior" if isinstance(prior, JointPrior) else type(likelihood).__name__


def layout(names: Sequence[str], of_network: str) -> str:
    """Say how a position or a prior with such parts looks.

    Examples
    --------
    >>> layout(("network", "log_precision"), "params")
    '{"network": params, "log_precision": ...}'
    """
    own = (f'"{name}": ...' for name in names if name != "network")
    return "{" + ", ".join([f'"network": {of_network}', *own]) + "}"


def position_shapes(network: Network | Callable, prior: PyTree, likelihood: Likelihood) -> PyTree:
    """Return the shapes of a position; raise ValueError where the prior has other parts."""
    if isinstance(prior, JointPrior):
        return _joint_shapes(network, prior, likelihood)
    if not likelihood.learned:
        return parameter_shapes(network) if isinstance(network, Network) else prior_shapes(prior)
    names = part_names(prior, likelihood)
    if not isinstance(prior, dict) or set(prior) != set(names):
        raise ValueError(
            f"with {type(likelihood).__name__} the prior must be {layout(names, 'prior')}, a "
            "distribution each, like the position; give it in that form."
        )
    if not isinstance(network, Network):
        return prior_shapes(prior)
    own = {name: prior_shapes(prior[name]) for name in likelihood.learned}
    return {"network": parameter_shapes(network), **own}


def _joint_shapes(network: Network | Callable, prior: Any, likelihood: Likelihood) -> PyTree:
    given, learned = set(prior.likelihood), set(likelihood.learned)
    if given != learned:
        raise ValueError(
            f"{type(likelihood).__name__} learns {', '.join(sorted(learned)) or 'nothing'}, but "
            f"the hierarchical prior has {', '.join(sorted(given)) or 'nothing'} for it; give "
            "hierarchical_prior(..., likelihood={name: distribution}) those."
        )
    shapes = prior.shapes()
    if isinstance(network, Network):
        wanted, found = parameter_shapes(network), shapes["network"]
        of = lambda tree: jax.tree.map(lambda leaf: leaf.shape, tree)  # noqa: E731
        if of(wanted) != of(found):
            raise ValueError(
                f"the hierarchical prior is of parameters shaped {of(found)}, but this network has "
                f"{of(wanted)}; make it of this network."
            )
    return shapes
