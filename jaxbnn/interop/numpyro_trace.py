"""Running a NumPyro model at a position, and refusing what has no log density of its latent sites.

A model may do more than sample: take a random part of its data, keep a state between calls, hold
parameters without a prior. NumPyro's optimisers want that; for a sampler it would be another target
than the one that the model seems to describe.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro import handlers
from numpyro.distributions import biject_to, constraints
from numpyro.infer import init_to_uniform
from numpyro.primitives import Messenger

from jaxbnn.numerics import is_concrete
from jaxbnn.numerics.arrays import widened

Sites = dict[str, Any]
Trace = dict[str, dict]


class SitePrior(NamedTuple):
    """Log prior terms of a latent site, and those of its bijection, None in constrained space.

    Each array apart: a support may have fewer terms than the distribution, or more. And where the
    density is raised to a power, the Jacobian is not.
    """

    density: Any
    jacobian: Any


class Terms(NamedTuple):
    """Log density of a model, site by site; see `model_terms`."""

    prior: dict[str, SitePrior]
    likelihood: dict
    values: Sites
    deterministic: Sites


def model_terms(
    model: Callable,
    args: tuple,
    kwargs: dict,
    position: Sites,
    space: str,
    *,
    is_whole: bool = True,
    key: Any = None,
) -> Terms:
    """Run a model at a position and return what each site adds to the log density.

    Supports may depend on other sites: each bijection is that of the support as the model meets it.
    A position that is not whole is that of some of the sites; the others are anywhere.
    """
    trace = trace_at(model, args, kwargs, position, space, is_whole=is_whole, key=key)
    prior: dict[str, SitePrior] = {}
    likelihood, values, deterministic = {}, {}, {}
    for name, site in trace.items():
        if site["type"] == "deterministic":
            deterministic[name] = site["value"]
        if site["type"] != "sample":
            continue
        terms = _log_prob(site, is_inside=site["is_observed"] or space == "unconstrained")
        if site["is_observed"]:
            likelihood[name] = terms
            continue
        jacobian = None
        if name in position:
            values[name] = site["value"]
            if space == "unconstrained":
                # From the trace: inside a `scan` there is one step's part of the value only. Apart
                # from the scale of the site: a volume is no density that a handler could scale.
                free = jnp.asarray(position[name])
                jacobian = bijection(site).log_abs_det_jacobian(free, site["value"])
        prior[name] = SitePrior(terms, jacobian)
    return Terms(prior, likelihood, values, deterministic)


def trace_at(
    model: Callable,
    args: tuple,
    kwargs: dict,
    position: Sites,
    space: str,
    *,
    is_whole: bool = True,
    key: Any = None,
) -> Trace:
    """Return the trace of a model at a position; see `model_terms`."""

    def substitute(site: dict) -> Any:
        if not is_latent(site):
            return None
        name = site["name"]
        if name not in position:
            if is_whole:
                raise no_value_for(name)
            return init_to_uniform(site)
        value = of_this_step(site, jnp.asarray(position[name]))
        return bijection(site)(value) if space == "unconstrained" else value

    return traced(model, args, kwargs, substitute, key)


def no_value_for(name: str) -> ValueError:
    """Return the error of a position that lacks a latent site."""
    return ValueError(
        f"the position has no value for the model's site {name!r}; give one for each of its latent "
        "sites (sites that are discrete have to be summed out)."
    )


def traced(
    model: Callable, args: tuple, kwargs: dict, substitute: Callable, key: Any = None
) -> Trace:
    """Return the trace of the model with the values of `substitute(site)`.

    Raises
    ------
    ValueError
        The model takes a random part of its data, keeps a state, has parameters without a prior, or
        fixes a latent site by `handlers.substitute`.
    """
    guard = _Guard()

    def substitute_fn(site: dict) -> Any:
        # Handlers inside the model come first: a value that is there is theirs.
        if site["type"] == "sample" and not site["is_observed"] and site["value"] is not None:
            raise ValueError(
                f"the model's latent site {site['name']!r} is given a value by handlers.substitute,"
                " which leaves it latent; fix it by handlers.condition, or sample it."
            )
        return substitute(site)

    key = jax.random.key(0) if key is None else key
    with handlers.block(), guard:
        trace = handlers.trace(
            handlers.substitute(handlers.seed(model, key), substitute_fn=substitute_fn)
        ).get_trace(*args, **kwargs)
    for name in guard.parameters:
        # `random_flax_module` puts sample sites in the places of the parameters that have a prior.
        if jax.tree.leaves(trace[name]["value"]):
            raise ValueError(
                f"the model's parameter {name!r} has no prior (numpyro.param, or a module that is "
                "not a random one): sample it, or fix it by handlers.substitute."
            )
    return trace


def anywhere(site: dict) -> Any:
    """Return a value inside the support of a latent site; improper priors have no draws."""
    if not is_latent(site) or site["fn"].support.is_discrete:
        return None
    bijection(site)  # raises where NumPyro has no bijection
    return init_to_uniform(site)


def bijection(site: dict) -> Any:
    """Return the map from R^d to the support of a site.

    Raises
    ------
    ValueError
        NumPyro has no bijection to this support.
    """
    try:
        return biject_to(site["fn"].support)
    except NotImplementedError:
        raise ValueError(
            f"the latent site {site['name']!r} has the support "
            f"{type(site['fn'].support).__name__.strip('_')}, which NumPyro cannot map to "
            "unconstrained numbers; reparametrise it by handlers.reparam."
        ) from None


def improper_sites(trace: Trace) -> list[str]:
    """Return the latent sites whose prior is improper, so that nothing can be drawn from it."""
    return [
        name
        for name, site in trace.items()
        if is_latent(site)
        and any(isinstance(layer, dist.ImproperUniform) for layer in _layers(site["fn"]))
    ]


def check_sites(trace: Trace, space: str, own: Collection[str] | None = None) -> None:
    """Raise ValueError for a latent or observed site that leaves no posterior to sample.

    Of the latent sites only a block's `own` are looked at, unless that is None.
    """
    samples = {name: site for name, site in trace.items() if site["type"] == "sample"}
    latent = {name: site for name, site in samples.items() if not site["is_observed"]}
    for name, site in latent.items():
        if own is None or name in own:
            _check_latent(name, site, space)
    if not latent:
        raise ValueError("the model has no latent sample site; there is nothing to sample.")
    if own is None and len(latent) == len(samples):
        raise ValueError("the model observes nothing; pass the data that its sites observe.")
    for name, site in samples.items():
        if site["is_observed"]:
            _check_observed(name, site)


def check_is_a_function(model: Callable, args: tuple, kwargs: dict, values: Sites) -> None:
    """Raise ValueError if the log density is another one under another key.

    So it is with dropout and with minibatches of one's own making: a sampler would have its target
    from one draw of them.
    """
    if not is_concrete((args, kwargs, values)):
        return
    with jax.ensure_compile_time_eval():  # while a chain's start is traced, too
        one, other = (
            model_terms(model, args, kwargs, values, "constrained", key=jax.random.key(seed))
            for seed in (0, 1)
        )
    terms = [jax.tree.leaves((of.prior, of.likelihood)) for of in (one, other)]
    # A model may hold traced numbers besides its arguments.
    if not is_concrete(terms):
        return
    if not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(*terms, strict=True)):
        raise ValueError(
            "the model draws random numbers besides its sample sites (numpyro.prng_key, as for "
            "dropout, or a minibatch), so that its log density is another one at each call; "
            "sample them, or leave them out."
        )


class _Guard(Messenger):
    """Refuses what a handler can see: parts of the data drawn at random, and states.

    It is to stand outside the model, so that what handlers inside have settled is settled.
    """

    def __init__(self):
        super().__init__()
        self.parameters: set[str] = set()

    def process_message(self, msg: Any) -> None:
        match msg["type"]:
            case "plate" if msg["value"] is None:
                size, part = msg["args"]
                raise ValueError(
                    f"the plate {msg['name']!r} takes {part} of its {size} rows at random, and a "
                    "posterior needs them all; leave out subsample_size (minibatches are for SVI)."
                )
            case "mutable":
                raise ValueError(
                    f"the model keeps the state {msg['name']!r} between calls "
                    "(numpyro.primitives.mutable, as for batch statistics or dropout), and a "
                    "posterior has no such state; use a module without one."
                )
            case "param" if msg["value"] is None:
                self.parameters.add(msg["name"])


def is_latent(site: dict) -> bool:
    """Whether a site of a trace is drawn and not observed."""
    return site["type"] == "sample" and not site["is_observed"]


def of_this_step(site: dict, value: Any) -> Any:
    """Inside a `scan` the position holds the values of all steps; return that of this one."""
    step = site["infer"].get("_scan_current_index")
    return value if step is None else value[step]


def _log_prob(site: dict, *, is_inside: bool) -> Any:
    """Return a site's terms: where its value may lie outside the support, -inf there.

    NumPyro's own are that with its validation only, and have gradients outside, which may be NaN.
    """
    law = site["fn"]
    value = site["value"] if site["is_observed"] else widened(site["value"])
    if is_inside:
        return _scaled(law.log_prob(value), site)
    inside = jnp.asarray(law.support(value))
    try:
        feasible = jnp.asarray(law.support.feasible_like(value), value.dtype)
    except NotImplementedError:  # of a constraint that a user wrote
        feasible = value
    mask = jnp.expand_dims(inside, range(inside.ndim, value.ndim))
    terms = _scaled(law.log_prob(jnp.where(mask, value, feasible)), site)
    # A support may have fewer event dimensions than the distribution, or more.
    more = inside.ndim - jnp.ndim(terms)
    inside = jnp.all(inside, axis=tuple(range(-more, 0))) if more > 0 else inside
    inside = jnp.expand_dims(inside, range(inside.ndim, jnp.ndim(terms)))
    return jnp.where(inside, terms, -jnp.inf)


def _scaled(terms: Any, site: dict) -> Any:
    return terms if site["scale"] is None else terms * site["scale"]


def _layers(distribution: Any) -> Iterator[Any]:
    """Yield a distribution and those inside it: expanded, masked, independent copies."""
    while distribution is not None:
        yield distribution
        distribution = getattr(distribution, "base_dist", None)


def _mask(distribution: Any) -> Any:
    """Return the mask of a distribution; True means that nothing is masked."""
    mask: Any = True
    for layer in _layers(distribution):
        if isinstance(layer, dist.MaskedDistribution):
            mask = mask & np.asarray(layer._mask) if is_concrete(layer._mask) else mask
    return np.asarray(mask)


def _check_latent(name: str, site: dict, space: str) -> None:
    if site["fn"].support.is_discrete:
        raise ValueError(
            f"the latent site {name!r} is discrete, but kernels here move continuous "
            "positions; sum it out of the model."
        )
    if any(isinstance(layer, dist.Delta) for layer in _layers(site["fn"])):
        raise ValueError(
            f"the latent site {name!r} is a Delta and has no density; write it as a "
            "numpyro.deterministic site."
        )
    if not np.all(_mask(site["fn"])):
        raise ValueError(
            f"the latent site {name!r} is masked, and without a prior where it is (obs_mask masks "
            "such a site too); mask observed sites only, and sample missing values as a site."
        )
    value = jnp.shape(site["value"])
    if space == "constrained" and bijection(site).inverse_shape(value) != value:
        raise ValueError(
            f"the latent site {name!r} has fewer degrees of freedom than numbers, and a kernel "
            "would leave its support; use space='unconstrained'."
        )


def _check_observed(name: str, site: dict) -> None:
    """Raise where the data, as far as they are not masked, are impossible whatever the latents."""
    value, fn = site["value"], site["fn"]
    if not is_concrete(value) or jnp.size(value) == 0:
        return
    value = np.asarray(value)
    mask = _mask(fn)
    counts = mask.reshape(mask.shape + (1,) * (fn.event_dim if mask.ndim else 0))
    if jnp.issubdtype(value.dtype, jnp.inexact) and np.any(np.isnan(value) & counts):
        raise ValueError(
            f"the observed site {name!r} holds nan; leave such data out, or mask them by "
            "handlers.mask."
        )
    if not _is_constant(fn.support):
        return
    with jax.ensure_compile_time_eval():  # a parallel chain's start is traced
        inside = np.asarray(fn.support(jnp.asarray(value)))
    if not np.all(inside | ~mask):
        raise ValueError(
            f"the observed site {name!r} holds data outside the support of its "
            f"{_family(fn)} distribution; correct them."
        )


def _is_constant(support: Any) -> bool:
    """Whether a support has no bounds, or plain numbers as bounds, which no latent site moves."""
    if isinstance(support, constraints.independent):
        return _is_constant(support.base_constraint)
    return all(isinstance(v, int | float | str) for v in getattr(support, "__dict__", {}).values())


def _family(distribution: Any) -> str:
    wrappers = (dist.ExpandedDistribution, dist.Independent, dist.MaskedDistribution)
    layers = [layer for layer in _layers(distribution) if not isinstance(layer, wrappers)]
    return type(layers[0]).__name__
