"""A NumPyro model as a target of our kernels: log densities as terms, in two spaces."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray
from numpyro import handlers
from numpyro.distributions import biject_to
from numpyro.infer import Predictive

from jaxbnn.numerics import is_concrete, sum_of_differences

Sites = dict[str, Any]


class Terms(NamedTuple):
    """Log density of a model, site by site; see `model_terms`."""

    prior: dict
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
) -> Terms:
    """Run a model at a position and return what each site adds to the log density.

    Supports may depend on other sites: each bijection is that of the support as the model meets it.
    A position that is not whole is that of some of the sites; the others are drawn.
    """
    jacobians, values = {}, {}

    def substitute(site):
        if site["type"] != "sample" or site["is_observed"] or site["name"] not in position:
            return None
        value = jnp.asarray(position[site["name"]])
        if space == "unconstrained":
            transform = biject_to(site["fn"].support)
            free, value = value, transform(value)
            jacobians[site["name"]] = transform.log_abs_det_jacobian(free, value)
        values[site["name"]] = value
        return value

    # The key is for sites without a value, and what depends on those is not looked at.
    with handlers.block():
        trace = handlers.trace(
            handlers.substitute(handlers.seed(model, jax.random.key(0)), substitute_fn=substitute)
        ).get_trace(*args, **kwargs)
    prior, likelihood, deterministic = {}, {}, {}
    for name, site in trace.items():
        if site["type"] == "deterministic":
            deterministic[name] = site["value"]
        if site["type"] != "sample":
            continue
        if is_whole and not site["is_observed"] and name not in position:
            raise ValueError(
                f"the position has no value for the model's site {name!r}; give one for each of "
                "its latent sites (sites that are discrete have to be summed out)."
            )
        scale = 1.0 if site["scale"] is None else site["scale"]
        terms = site["fn"].log_prob(site["value"]) * scale
        if site["is_observed"]:
            likelihood[name] = terms
        else:
            # Each array apart: a support may have fewer terms than the distribution, or more.
            prior[name] = (terms, jacobians[name]) if name in jacobians else (terms,)
    return Terms(prior, likelihood, values, deterministic)


def posterior_from_numpyro(
    model: Callable, *args: Any, space: str = "unconstrained", **kwargs: Any
) -> "ModelPosterior":
    """Return the posterior of a NumPyro model, with the methods of `jaxbnn.Posterior`.

    Parameters
    ----------
    model
        A NumPyro model whose latent sites are continuous. Networks are drawn by `sample_network`,
        or by any sample statements.
    args, kwargs
        What the model is called with, the data among them.
    space
        Where positions live: "unconstrained", all of R^d, with the Jacobian in the prior, which any
        kernel can move in; or "constrained", the sites' own supports. `constrain` and `unconstrain`
        lead from one to the other.

    Returns
    -------
    A `ModelPosterior`, a PyTree; positions are dicts by site.

    Raises
    ------
    ValueError
        A latent site is discrete, a space of another name, or nothing is observed.

    Notes
    -----
    The log-likelihood terms are those of all observed sites, one after the other, as they lie
    (`numpyro.factor` counts as one). Latent sites that depend on others are drawn and evaluated in
    the model's order, so hierarchies need nothing special.

    Examples
    --------
    >>> import numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     rate = numpyro.sample("rate", dist.Exponential(1.0))
    ...     numpyro.sample("y", dist.Poisson(rate), obs=y)
    >>> posterior = posterior_from_numpyro(model, jnp.array([2, 3]))
    >>> u = posterior.unconstrain({"rate": jnp.array(2.0)})
    >>> round(float(u["rate"]), 4), posterior.log_likelihood(u).shape
    (0.6931, (2,))
    >>> round(float(posterior.log_prior(u)), 4)  # -2 and log 2, the Jacobian
    -1.3069
    """
    if space not in ("unconstrained", "constrained"):
        raise ValueError(f"space must be 'unconstrained' or 'constrained', but is {space!r}.")
    with handlers.block():
        trace = handlers.trace(handlers.seed(model, jax.random.key(0))).get_trace(*args, **kwargs)
    samples = {name: site for name, site in trace.items() if site["type"] == "sample"}
    latent = {name: site for name, site in samples.items() if not site["is_observed"]}
    discrete = [name for name, site in latent.items() if site["fn"].support.is_discrete]
    if discrete:
        raise ValueError(
            f"the latent site {discrete[0]!r} is discrete, but kernels here move continuous "
            "positions; sum it out of the model."
        )
    if not latent:
        raise ValueError("the model has no latent sample site; there is nothing to sample.")
    if len(latent) == len(samples):
        raise ValueError("the model observes nothing; pass the data that its sites observe.")
    return ModelPosterior(args, kwargs, None, None, model, space, tuple(latent))


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class ModelPosterior:
    """The posterior of a NumPyro model at its data; made by `posterior_from_numpyro`.

    Attributes
    ----------
    args, kwargs
        What the model is called with.
    likelihood_power, prior_power
        Set by `tempered`; None counts as 1.
    model, space, sites
        The model, where positions live, and the names of the latent sites.

    Examples
    --------
    >>> import numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     numpyro.sample("y", dist.Normal(numpyro.sample("m", dist.Normal(0, 1)), 1), obs=y)
    >>> posterior_from_numpyro(model, jnp.zeros(3)).sites
    ('m',)
    """

    args: tuple
    kwargs: dict
    likelihood_power: ArrayLike | None
    prior_power: ArrayLike | None
    model: Callable = field(metadata={"static": True})
    space: str = field(metadata={"static": True})
    sites: tuple[str, ...] = field(metadata={"static": True})

    def log_prior(self, position: Sites) -> Float[Array, ""]:
        """Return the log prior density in this space, the Jacobian included."""
        return _powered(self.prior_power, _total(self._terms(position).prior))

    def log_likelihood(self, position: Sites) -> Float[Array, " terms"]:
        """Return the log-likelihood terms of all observed sites, one after the other."""
        return _powered(self.likelihood_power, _flat(self._terms(position).likelihood))

    def log_density(self, position: Sites) -> Float[Array, ""]:
        """Return log prior + sum of log likelihood, the log posterior up to a constant."""
        terms = self._terms(position)
        likelihood = _powered(self.likelihood_power, _total(terms.likelihood))
        return likelihood + _powered(self.prior_power, _total(terms.prior))

    def log_density_from(self, reference: Sites) -> Callable[[Sites], Float[Array, ""]]:
        """Return position -> log_density(position) - log_density(reference), term by term."""
        origin = self._terms(reference)
        prior, likelihood = _flat(origin.prior), _flat(origin.likelihood)

        def log_density(position):
            terms = self._terms(position)
            ratio = sum_of_differences(_flat(terms.likelihood), likelihood)
            prior_ratio = sum_of_differences(_flat(terms.prior), prior)
            return _powered(self.likelihood_power, ratio) + _powered(self.prior_power, prior_ratio)

        return log_density

    def tempered(self, t: ArrayLike, what: str = "likelihood") -> "ModelPosterior":
        """Return the posterior with its likelihood, or all of it, raised to the power t >= 0."""
        if what not in ("likelihood", "posterior"):
            raise ValueError(f"what must be 'likelihood' or 'posterior', but is {what!r}.")
        if is_concrete(t) and not (np.isfinite(t) and np.asarray(t) >= 0):
            raise ValueError(f"t must be a finite power, zero or more, but is {t}.")

        def times(power):
            return t if power is None else power * t

        prior_power = times(self.prior_power) if what == "posterior" else self.prior_power
        likelihood_power = times(self.likelihood_power)
        return replace(self, likelihood_power=likelihood_power, prior_power=prior_power)

    def sample_prior(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Sites:
        """Return positions drawn from the prior, with `shape` before each site's own."""

        def draw(one_key):
            with handlers.block():
                trace = handlers.trace(handlers.seed(self.model, one_key)).get_trace(
                    *self.args, **self.kwargs
                )
            values = {name: trace[name]["value"] for name in self.sites}
            return self.unconstrain(values) if self.space == "unconstrained" else values

        if not shape:
            return draw(key)
        draws = jax.vmap(draw)(jax.random.split(key, int(np.prod(shape))))
        return jax.tree.map(lambda leaf: leaf.reshape(shape + leaf.shape[1:]), draws)

    def constrain(self, position: Sites) -> Sites:
        """Return the sites' values at an unconstrained position."""
        return model_terms(self.model, self.args, self.kwargs, position, "unconstrained").values

    def unconstrain(self, values: Sites) -> Sites:
        """Return the unconstrained position of the sites' values."""
        position = {}

        def substitute(site):
            if site["type"] != "sample" or site["name"] not in values or site["is_observed"]:
                return None
            value = jnp.asarray(values[site["name"]])
            position[site["name"]] = biject_to(site["fn"].support).inv(value)
            return value

        with handlers.block():
            handlers.trace(
                handlers.substitute(
                    handlers.seed(self.model, jax.random.key(0)), substitute_fn=substitute
                )
            ).get_trace(*self.args, **self.kwargs)
        return position

    def simulate(self, key: PRNGKeyArray, position: Sites, *args: Any, **kwargs: Any) -> Sites:
        """Return what the model draws for its other sites, called with new arguments.

        Leave out the data that the model should draw: `simulate(key, position, x_new)`.
        """
        values = self.constrain(position) if self.space == "unconstrained" else position
        one = jax.tree.map(lambda leaf: leaf[None], values)
        drawn = Predictive(self.model, posterior_samples=one)(key, *args, **kwargs)
        return {name: value[0] for name, value in drawn.items()}

    def _terms(self, position: Sites) -> Terms:
        return model_terms(self.model, self.args, self.kwargs, position, self.space)


def _flat(terms: dict) -> Float[Array, " terms"]:
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(terms)])


def _total(terms: dict) -> Float[Array, ""]:
    parts = [jnp.sum(leaf) for leaf in jax.tree.leaves(terms)]
    return sum(parts[1:], start=parts[0])


def _powered(power: ArrayLike | None, value: Array) -> Array:
    return value if power is None else jnp.asarray(power, value.dtype) * value
