"""A NumPyro model as a target of our kernels: log densities as terms, in two spaces."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray
from numpyro import handlers
from numpyro.infer import Predictive

from jaxbnn.interop.numpyro_call import Call, check_call
from jaxbnn.interop.numpyro_trace import (
    SitePrior,
    Sites,
    Terms,
    anywhere,
    bijection,
    check_is_a_function,
    check_sites,
    improper_sites,
    is_latent,
    model_terms,
    no_value_for,
    of_this_step,
    traced,
)
from jaxbnn.numerics import check_real, is_concrete, sum_of_differences
from jaxbnn.numerics.arguments import check_key, check_word
from jaxbnn.numerics.arrays import widened
from jaxbnn.targets.powers import powered, powered_likelihood, still_at_zero


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
        What the model is called with, the data among them. Arrays may be traced; anything else, a
        number of layers or a name, is static, and has to be hashable.
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
        A latent site is discrete, a Delta or masked; nothing is observed, or what is observed is
        NaN or impossible; a space of another name, or "constrained" for a support of fewer
        dimensions than numbers. A model whose density is not a function of its latent sites: a
        plate with a subsample_size, `numpyro.param` without a value,
        `numpyro.primitives.mutable`, random numbers of another origin.
    TypeError
        The model is no function, does not take these arguments, or an argument is neither an array
        nor hashable.

    Notes
    -----
    The log-likelihood terms are those of all observed sites, one after the other, as they lie
    (`numpyro.factor` counts as one). Latent sites that depend on others are drawn and evaluated in
    the model's order, so hierarchies need nothing special. `handlers.scale` raises the density of a
    latent site to a power, but not the Jacobian of its bijection: in unconstrained space NumPyro
    scales that too, so that its target is another one there. Densities are NumPyro's own: that of
    a Student's t loses digits in float32, 1e-4 a datum at 300 degrees of freedom and .08 at 1e6,
    which `jaxbnn.targets.StudentT` does not.

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
    check_word("space", space, ("unconstrained", "constrained"))
    check_call(model, args, kwargs)
    arrays, call = Call.split(args, kwargs)
    args, kwargs = call.join(arrays)
    trace = traced(model, args, kwargs, anywhere)
    check_sites(trace, space)
    latent = {
        name: site
        for name, site in trace.items()
        if site["type"] == "sample" and not site["is_observed"]
    }
    shapes = {name: jnp.shape(site["value"]) for name, site in latent.items()}
    if space == "unconstrained":
        shapes = {name: bijection(latent[name]).inverse_shape(shapes[name]) for name in latent}
    posterior = ModelPosterior.at(model, args, kwargs, space, shapes)
    check_is_a_function(model, args, kwargs, {name: latent[name]["value"] for name in latent})
    return posterior


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class ModelPosterior:
    """The posterior of a NumPyro model at its data; made by `posterior_from_numpyro`.

    Attributes
    ----------
    arrays
        The arrays that the model is called with: the leaves that may be traced.
    likelihood_power, prior_power
        Set by `tempered`; None counts as 1.
    model, call, space, shapes
        The model, its other arguments, where positions live, and the latent sites with the shapes
        of their values there; None where these are not known.

    Examples
    --------
    >>> import numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     numpyro.sample("y", dist.Normal(numpyro.sample("m", dist.Normal(0, 1)), 1), obs=y)
    >>> posterior_from_numpyro(model, jnp.zeros(3)).sites
    ('m',)
    """

    arrays: tuple
    likelihood_power: ArrayLike | None
    prior_power: ArrayLike | None
    model: Callable = field(metadata={"static": True})
    call: Call = field(metadata={"static": True})
    space: str = field(metadata={"static": True})
    shapes: tuple[tuple[str, tuple[int, ...]], ...] | None = field(metadata={"static": True})

    @classmethod
    def at(
        cls, model: Callable, args: tuple, kwargs: dict, space: str, shapes: dict | None = None
    ) -> "ModelPosterior":
        """Return the posterior of a model at these arguments, without any check of them."""
        arrays, call = Call.split(args, kwargs)
        known = None if shapes is None else tuple(shapes.items())
        return cls(arrays, None, None, model, call, space, known)

    @property
    def args(self) -> tuple:
        """What the model is called with, by position."""
        return self.call.join(self.arrays)[0]

    @property
    def kwargs(self) -> dict:
        """What the model is called with, by name."""
        return self.call.join(self.arrays)[1]

    @property
    def sites(self) -> tuple[str, ...]:
        """The names of the latent sites."""
        return tuple(name for name, _ in self.shapes or ())

    def log_prior(self, position: Sites) -> Float[Array, ""]:
        """Return the log prior density in this space, the Jacobian included, which has no power."""
        return _powered_prior(self.prior_power, _total, self._terms(position).prior)

    def log_likelihood(self, position: Sites) -> Float[Array, " terms"]:
        """Return the log-likelihood terms of all observed sites, one after the other."""
        terms = self._terms(still_at_zero(self.likelihood_power, position))
        return powered_likelihood(self.likelihood_power, _flat(terms.likelihood))

    def log_density(self, position: Sites) -> Float[Array, ""]:
        """Return log prior + sum of log likelihood, the log posterior up to a constant."""
        terms = self._terms(position)
        likelihood = _total(self._likelihood(position, terms))
        likelihood = powered_likelihood(self.likelihood_power, likelihood)
        return likelihood + _powered_prior(self.prior_power, _total, terms.prior)

    def log_density_from(self, reference: Sites) -> Callable[[Sites], Float[Array, ""]]:
        """Return position -> log_density(position) - log_density(reference), term by term."""
        origin = self._terms(reference)
        likelihood = _flat(self._likelihood(reference, origin))

        def change(proposed, current):
            return sum_of_differences(_flat(proposed), _flat(current))

        def log_density(position):
            terms = self._terms(position)
            ratio = sum_of_differences(_flat(self._likelihood(position, terms)), likelihood)
            prior_ratio = _powered_prior(self.prior_power, change, terms.prior, origin.prior)
            return powered_likelihood(self.likelihood_power, ratio) + prior_ratio

        return log_density

    def _likelihood(self, position: Sites, terms: Any) -> Any:
        """Return the likelihood's terms, without derivatives where a traced power is 0."""
        held = still_at_zero(self.likelihood_power, position)
        return terms.likelihood if held is position else self._terms(held).likelihood

    def tempered(self, t: ArrayLike, what: str = "likelihood") -> "ModelPosterior":
        """Return the posterior with its likelihood, or all of it, raised to the power t >= 0.

        The power is one of the density of the sites' values, in either space: the Jacobian of the
        way to unconstrained numbers stays as it is. The swaps of
        `power_posterior(..., tempered="posterior")` must leave it out, too: in unconstrained space
        give `lambda u: constrained.log_prior(posterior.constrain(u))` for its `log_prior_fn`, where
        `constrained` is the same posterior in constrained space.
        """
        check_word("what", what, ("likelihood", "posterior"))
        check_real("t", t)
        if np.ndim(t):
            raise ValueError(f"t must be one power, but has shape {np.shape(t)}; map over several.")
        if is_concrete(t) and not (np.isfinite(t) and np.asarray(t) >= 0):
            raise ValueError(f"t must be a finite power, zero or more, but is {t}.")

        def times(power):
            return t if power is None else power * t

        prior_power = times(self.prior_power) if what == "posterior" else self.prior_power
        likelihood_power = times(self.likelihood_power)
        return replace(self, likelihood_power=likelihood_power, prior_power=prior_power)

    def sample_prior(self, key: PRNGKeyArray, shape: tuple[int, ...] = ()) -> Sites:
        """Return positions drawn from the prior, with `shape` before each site's own."""
        check_key("key", key)
        args, kwargs = self.call.join(self.arrays)
        improper = improper_sites(traced(self.model, args, kwargs, anywhere))
        if improper:
            raise ValueError(
                f"the prior of the site {improper[0]!r} is improper, and nothing can be drawn from "
                "it; start from positions of your own, uniform in (-2, 2) for instance."
            )

        def draw(one_key):
            with handlers.block():
                trace = handlers.trace(handlers.seed(self.model, one_key)).get_trace(
                    *args, **kwargs
                )
            values = {name: trace[name]["value"] for name in self.sites}
            return self.unconstrain(values) if self.space == "unconstrained" else values

        if not shape:
            return draw(key)
        draws = jax.vmap(draw)(jax.random.split(key, int(np.prod(shape))))
        return jax.tree.map(lambda leaf: leaf.reshape(shape + leaf.shape[1:]), draws)

    def constrain(self, position: Sites) -> Sites:
        """Return the sites' values at an unconstrained position, of one draw."""
        check_position(position, self.shapes if self.space == "unconstrained" else self._names())
        args, kwargs = self.call.join(self.arrays)
        return model_terms(self.model, args, kwargs, position, "unconstrained").values

    def unconstrain(self, values: Sites) -> Sites:
        """Return the unconstrained position of the sites' values, of one draw.

        Raises
        ------
        ValueError
            A site without a value, a name that is no latent site, a value of another shape than
            the site's, or one outside its support.
        """
        check_position(values, self._names())

        def substitute(site):
            name = site["name"]
            if not is_latent(site) or name not in values:
                return anywhere(site)
            value = of_this_step(site, jnp.asarray(values[name]))
            _check_shape(name, jnp.shape(value), jnp.shape(anywhere(site)))
            return value

        trace = traced(self.model, *self.call.join(self.arrays), substitute)
        position = {
            name: bijection(site).inv(site["value"])
            for name, site in trace.items()
            if name in values and is_latent(site)
        }
        for name, free in position.items():
            if is_concrete(free) and np.isnan(free).any():
                raise ValueError(
                    f"the value of the site {name!r} is outside of its support, or NaN; give one "
                    "inside."
                )
        return position

    def simulate(self, key: PRNGKeyArray, position: Sites, *args: Any, **kwargs: Any) -> Sites:
        """Return what the model draws for its other sites, called with new arguments.

        Leave out the data that the model should draw: `simulate(key, position, x_new)`. The
        position is of one draw; chains go through jax.vmap.
        """
        check_key("key", key)
        check_position(position, self.shapes)
        values = self.constrain(position) if self.space == "unconstrained" else position
        one = jax.tree.map(lambda leaf: leaf[None], values)
        drawn = Predictive(self.model, posterior_samples=one)(key, *args, **kwargs)
        return {name: value[0] for name, value in drawn.items()}

    def _names(self) -> tuple | None:
        """Return the latent sites, as `check_position` takes them, of any shape."""
        return None if self.shapes is None else tuple((name, None) for name, _ in self.shapes)

    def _terms(self, position: Sites) -> Terms:
        check_position(position, self.shapes)
        return model_terms(self.model, *self.call.join(self.arrays), position, self.space)


def check_position(position: Any, shapes: tuple | None) -> None:
    """Raise unless a position is a dict with a value of the right shape for each latent site."""
    if shapes is None:
        return
    if not isinstance(position, dict):
        raise TypeError(
            f"positions are dicts by site, {[name for name, _ in shapes]}, but this one is of type "
            f"{type(position).__name__}."
        )
    unknown = sorted(set(position) - {name for name, _ in shapes})
    if unknown:
        raise ValueError(
            f"the position has a value for {unknown[0]!r}, which is no latent site of the model; "
            f"those are {', '.join(name for name, _ in shapes)}."
        )
    for name, shape in shapes:
        if name not in position:
            raise no_value_for(name)
        if shape is not None:
            _check_shape(name, jnp.shape(position[name]), shape)


def _check_shape(name: str, given: tuple[int, ...], shape: tuple[int, ...]) -> None:
    if given != shape:
        raise ValueError(
            f"the position's {name!r} has shape {given}, but the site has shape {shape}; chains go "
            "through jax.vmap."
        )


def _flat(terms: dict) -> Float[Array, " terms"]:
    return jnp.concatenate([jnp.ravel(widened(leaf)) for leaf in jax.tree.leaves(terms)])


def _total(terms: dict) -> Float[Array, ""]:
    parts = [jnp.sum(widened(leaf)) for leaf in jax.tree.leaves(terms)]
    return sum(parts[1:], start=parts[0])


def _powered_prior(
    power: ArrayLike | None, combine: Callable[..., Array], *priors: dict[str, SitePrior]
) -> Array:
    """Return `combine(*priors)` with the densities to a power, the Jacobians not."""
    if power is None:
        return combine(*priors)
    densities = [{name: site.density for name, site in prior.items()} for prior in priors]
    jacobians = [{name: site.jacobian for name, site in prior.items()} for prior in priors]
    value = powered(power, combine(*densities))
    return value + combine(*jacobians) if jax.tree.leaves(jacobians) else value
