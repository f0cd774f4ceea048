"""The groups of ArviZ that a NumPyro model fills: a variable for each of its sites."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import PRNGKeyArray, PyTree

from jaxbnn.diagnostics import evaluate
from jaxbnn.interop.numpyro_model import ModelPosterior
from jaxbnn.interop.numpyro_trace import model_terms, trace_at
from jaxbnn.prediction.families import sample_law

Group = tuple[dict[str, np.ndarray], dict[str, tuple[str, ...]]]


def model_groups(
    posterior: ModelPosterior, positions: PyTree, key: PRNGKeyArray | None, batch_size: int
) -> tuple[dict[str, Group], np.ndarray]:
    """Return the groups, each (values, dimensions) by variable, and the log density of the draws.

    Examples
    --------
    >>> import numpyro
    >>> from jaxbnn.interop.numpyro import posterior_from_numpyro
    >>> def model(y):
    ...     numpyro.sample("y", dist.Normal(numpyro.sample("m", dist.HalfNormal(1.0)), 1.0), obs=y)
    >>> posterior = posterior_from_numpyro(model, np.zeros(5))
    >>> groups, lp = model_groups(posterior, {"m": np.zeros((2, 3))}, None, 64)
    >>> groups["log_likelihood"][0]["y"].shape, float(groups["posterior"][0]["m"][0, 0])
    ((2, 3, 5), 1.0)
    """
    if not isinstance(positions, dict) or set(positions) != set(posterior.sites):
        raise ValueError(
            f"the draws must be dicts with the model's sites {', '.join(posterior.sites)}, as the "
            "positions that were sampled."
        )
    model, space = posterior.model, posterior.space
    args, kwargs = posterior.call.join(posterior.arrays)

    def at(position: dict) -> dict:
        return trace_at(model, args, kwargs, position, space)

    sites = {
        name: site
        for name, site in at(jax.tree.map(lambda v: v[0, 0], positions)).items()
        if site["type"] == "sample" and site["is_observed"] and not _is_factor(site)
    }

    def one(position: dict) -> tuple:
        terms = model_terms(model, args, kwargs, position, space)
        likelihood = {name: terms.likelihood[name] for name in sites}
        return likelihood, terms.values | terms.deterministic, posterior.log_density(position)

    found = evaluate(one, positions, batch_size=batch_size)
    terms, values, log_density = jax.tree.map(np.asarray, found)
    observed = {name: np.asarray(site["value"]) for name, site in sites.items()}
    groups = {
        "posterior": _group(values, 2),
        # In float64 from here on: ArviZ adds them up, over data and over draws.
        "log_likelihood": _group({name: np.asarray(v, float) for name, v in terms.items()}, 2),
        "observed_data": _group(observed, 0),
    }
    if key is not None:

        def draw(key_and_position: tuple) -> dict:
            trace = at(key_and_position[1])
            keys = jax.random.split(key_and_position[0], len(sites))
            pairs = zip(sites, keys, strict=True)
            return {name: _drawn(k, trace[name]) for name, k in pairs}

        keys = jax.random.split(key, log_density.shape)
        drawn = evaluate(draw, (keys, positions), batch_size=batch_size)
        found = {
            name: as_whole(values) if sites[name]["fn"].support.is_discrete else np.asarray(values)
            for name, values in drawn.items()
        }
        groups["posterior_predictive"] = _group(found, 2)
    return groups, np.asarray(log_density, float)


def _drawn(key: PRNGKeyArray, site: Any) -> Any:
    """Draw a site anew. Outside a plate a distribution may have fewer values than the data."""
    distribution, shape = site["fn"], np.shape(site["value"])
    base = distribution
    while isinstance(base, dist.ExpandedDistribution | dist.Independent):
        base = base.base_dist
    if isinstance(base, dist.Poisson):
        return sample_law(dist.Poisson(jnp.broadcast_to(base.rate, shape)), key)
    if isinstance(base, dist.GammaPoisson):
        parameters = jnp.broadcast_to(base.concentration, shape), base.rate
        return sample_law(dist.GammaPoisson(*parameters), key)
    return distribution.expand(shape[: len(shape) - distribution.event_dim]).sample(key)


def as_whole(values: Any) -> np.ndarray:
    """Return counts as whole numbers, by which ArviZ knows them; infinite ones as they are.

    Examples
    --------
    >>> as_whole(np.array([3.0, 1e12], np.float32)).tolist(), as_whole(np.array([np.inf])).tolist()
    ([3, 999999995904], [inf])
    """
    values = np.asarray(values)
    is_held = np.isfinite(values).all() and (np.abs(values) < 2.0**63).all()
    return values.astype(np.int64) if is_held else values


def _group(values: dict[str, np.ndarray], lead: int) -> Group:
    dims = {
        name: tuple(f"{name}_dim_{i}" for i in range(value.ndim - lead))
        for name, value in values.items()
    }
    return values, dims


def _is_factor(site: Any) -> bool:
    distribution = site["fn"]
    while hasattr(distribution, "base_dist"):
        distribution = distribution.base_dist
    return isinstance(distribution, dist.distribution.Unit)
