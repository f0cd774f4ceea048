"""Draw the precisions of a hierarchical prior, and of Gaussian noise, from their conditionals.

With tau ~ Gamma(a, b) for the m parameters theta_i ~ N(0, s^2 / tau) of an array, and noise of
precision kappa ~ Gamma(c, d) on n targets with residuals r,

    tau   | theta ~ Gamma(a + m / 2, b + sum_i theta_i^2 / (2 s^2))
    kappa | theta ~ Gamma(c + n / 2, d + sum_i r_i^2 / 2).

Where each column of the targets has noise of its own, n and r are those of the column.

The position holds logarithms, log(tau) and -log(kappa) / 2, and the density of log(tau) has a
factor tau, the Jacobian, by which its exponents are a and not a - 1: a draw of tau and then its
logarithm is a draw of log(tau). No gradient, and a likelihood only for the residuals: put it in a
`cycle` after a kernel that moves the network (Neal 1996, section 3.2).

In the non-centred form theta, and with it the likelihood, is held fixed and the standardised
z = theta tau^(1/2) / s follows tau: the same draw in other coordinates. Moves by gradients, in
which theta follows tau, alternate with draws of tau in which it does not (Yu and Meng 2011).
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from blackjax.base import SamplingAlgorithm
from jaxtyping import Array, ArrayLike, Bool, PRNGKeyArray, PyTree

from jaxbnn.kernels.arguments import check_step
from jaxbnn.kernels.refresh import auxiliary_fields
from jaxbnn.kernels.symmetry_priors import base_distribution
from jaxbnn.kernels.trees import check_position
from jaxbnn.numerics import check_real
from jaxbnn.numerics.arrays import float_dtype, widest_float
from jaxbnn.targets import LearnedGaussian, LogGamma, Posterior
from jaxbnn.targets.hierarchical import HierarchicalPrior, squares_of
from jaxbnn.targets.likelihoods import lay_out
from jaxbnn.targets.log_gamma import numbers_of

_NOISE = "log_noise_scale"


@auxiliary_fields()
class PriorPrecisionsState(NamedTuple):
    """The position; there is nothing to cache.

    Attributes
    ----------
    position
        {"network": ..., "log_precision": ..., ...}.
    """

    position: PyTree


class PriorPrecisionsInfo(NamedTuple):
    """What happened in one step; every draw is exact, and none is accepted or rejected.

    Attributes
    ----------
    is_divergent
        Whether a draw overflowed, so that it was left as it was.
    """

    is_divergent: Bool[Array, ""]


def prior_precisions(posterior: Posterior) -> SamplingAlgorithm:
    """Return a kernel that draws the precisions of a hierarchical prior given the network.

    With `LearnedGaussian` and a prior of its noise scale that is LogGamma(c, d, exponent=-0.5),
    the noise scale is drawn too, given the network's residuals; a scale for each column of y, as
    with LogGamma(c, d, exponent=-0.5).expand((k,)), given those of its column.

    All else that a likelihood learns stays as it is: a noise scale under a prior of another family
    or another exponent, and what other likelihoods learn. Nothing warns of it, since other kernels
    of the cycle may move it. Where they move "network" alone, it keeps its first value for ever:
    give them the whole position, or on_block(..., ["network", "log_noise_scale"]).

    Parameters
    ----------
    posterior
        A `Posterior` with a `hierarchical_prior`, centred or not, tempered or not.

    Returns
    -------
    `init(position, rng_key=None)` and `step(rng_key, state)` with `PriorPrecisionsState` and
    `PriorPrecisionsInfo`.

    Raises
    ------
    TypeError
        If it is given no `Posterior`.
    ValueError
        If the posterior's prior is not hierarchical; `init`, if the position has other parts.

    Notes
    -----
    Neal (1996), Bayesian Learning for Neural Networks, section 3.2.

    Examples
    --------
    >>> import blackjax
    >>> from jaxbnn.kernels import cycle
    >>> from jaxbnn.networks import mlp
    >>> from jaxbnn.targets import hierarchical_prior
    >>> noise = {"log_noise_scale": LogGamma(1.0, 0.1, exponent=-0.5)}
    >>> prior = hierarchical_prior(mlp((1, 3, 1)), likelihood=noise)
    >>> x = jnp.linspace(-1.0, 1.0, 5)[:, None]
    >>> posterior = Posterior(mlp((1, 3, 1)), prior, LearnedGaussian(), x, x)
    >>> kernel = cycle(blackjax.mala(posterior.log_density, 0.01), prior_precisions(posterior))
    >>> state = jax.jit(kernel.init)(posterior.sample_prior(jax.random.key(0)))
    >>> state, info = jax.jit(kernel.step)(jax.random.key(1), state)
    >>> sorted(state.position)
    ['log_noise_scale', 'log_precision', 'network']
    """
    if not isinstance(posterior, Posterior):
        raise TypeError(
            "prior_precisions takes a Posterior(network, prior, likelihood, x, y), but was given a "
            f"{type(posterior).__name__}."
        )
    prior: Any = posterior.prior
    if not isinstance(prior, HierarchicalPrior):
        raise ValueError(
            "prior_precisions draws what hierarchical_prior learns, but the precisions of this "
            "posterior's prior are fixed; give it a hierarchical_prior, or leave the kernel out."
        )
    draws_noise = isinstance(posterior.likelihood, LearnedGaussian) and _is_conjugate(
        prior.likelihood.get(_NOISE)
    )

    def init(position, rng_key=None):
        check_position(position)
        for path, leaf in jax.tree_util.tree_leaves_with_path(position):
            check_real(f"position{jax.tree_util.keystr(path)}", leaf)  # complex ones are not drawn
        if not isinstance(position, dict) or set(position) != set(prior.names):
            raise ValueError(
                f"the position must be a dict of {', '.join(prior.names)}, but is "
                f"{jax.tree.structure(position)}; posterior.sample_prior(key) makes one."
            )
        wanted = jax.tree.map(lambda leaf: leaf.shape, prior.shapes())
        found = jax.tree.map(jnp.shape, position)
        if found != wanted:
            raise ValueError(
                f"the position must have the shapes {wanted}, but has {found}; chains go through "
                "jax.vmap, and posterior.sample_prior(key) makes a position."
            )
        return PriorPrecisionsState(position)

    def step(rng_key, state):
        check_step(rng_key, state)
        position, params = state.position, prior.network_parameters(state.position)
        leaves = jax.tree.leaves(position["log_precision"])
        structure: Any = jax.tree.structure(position["log_precision"])
        conditionals = list(precisions_given(posterior, position["log_precision"], params))
        if draws_noise:
            conditionals.append(noise_precision_given(posterior, position))
        old = leaves + ([-2 * position[_NOISE]] if draws_noise else [])
        drawn, is_sound = _draw(rng_key, conditionals, old)
        new = position | {"log_precision": structure.unflatten(drawn[: len(leaves)])}
        new["network"] = prior.standardised(new, params)
        if draws_noise:
            new[_NOISE] = -drawn[-1] / 2
        return PriorPrecisionsState(new), PriorPrecisionsInfo(~is_sound)

    return SamplingAlgorithm(init, step)


def precisions_given(
    posterior: Posterior, log_precision: PyTree, params: PyTree
) -> Sequence[tuple[Array, Array]]:
    """Return (concentration, rate) of each precision given the network's parameters.

    With a power t of the prior all exponents are times t, but for that of the Jacobian of the
    non-centred form, tau^(count / 2).

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> from jaxbnn.targets import Gaussian, hierarchical_prior
    >>> network, x = mlp((1, 1)), jnp.ones((2, 1))
    >>> prior = hierarchical_prior(network, concentration=2.0, rate=3.0)
    >>> params = ({"w": jnp.full((1, 1), 4.0), "b": jnp.zeros(1)},)
    >>> log_precision = ({"w": jnp.zeros(()), "b": jnp.zeros(())},)
    >>> posterior = Posterior(network, prior, Gaussian(1.0), x, x)
    >>> [tuple(map(float, pair)) for pair in precisions_given(posterior, log_precision, params)]
    [(2.5, 3.0), (2.5, 11.0)]
    """
    prior: Any = posterior.prior
    is_law = lambda node: isinstance(node, dist.Distribution)  # noqa: E731
    bases = jax.tree.leaves(prior.base, is_leaf=is_law)
    laws = jax.tree.leaves(prior.log_precision, is_leaf=is_law)
    found = []
    for base, law, old, theta in zip(
        bases, laws, jax.tree.leaves(log_precision), jax.tree.leaves(params), strict=True
    ):
        squares, count = squares_of(base, theta, old)
        a, b = numbers_of(law, theta.dtype)
        power = _power(posterior.prior_power, theta.dtype)
        # A Jacobian is no density, and has no power: tau^(count / 2) of z is it in the
        # non-centred form, and of the density of theta in the centred one.
        of_theta = (power if prior.is_centred else 1) * count / 2
        found.append((power * a + of_theta, power * (b + squares / 2)))
    return found


def noise_precision_given(posterior: Posterior, position: PyTree) -> tuple[Array, Array]:
    """Return (concentration, rate) of the Gaussian noise's precision given the network.

    One number each, or one a column, as the prior of the noise scale has it.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> from jaxbnn.targets import hierarchical_prior
    >>> network, x, y = mlp((1, 1)), jnp.ones((2, 1)), jnp.array([[1.0], [3.0]])
    >>> noise = {"log_noise_scale": LogGamma(1.0, 0.5, exponent=-0.5)}
    >>> prior = hierarchical_prior(network, likelihood=noise)
    >>> position = {"network": ({"w": jnp.zeros((1, 1)), "b": jnp.zeros(1)},)}
    >>> position["log_precision"] = ({"w": jnp.zeros(()), "b": jnp.zeros(())},)
    >>> position["log_noise_scale"] = jnp.zeros(())
    >>> posterior = Posterior(network, prior, LearnedGaussian(), x, y)
    >>> [float(number) for number in noise_precision_given(posterior, position)]
    [2.0, 5.5]
    """
    prior: Any = posterior.prior
    y = posterior.y
    outputs = lay_out(posterior.outputs(position, posterior.x), y.ndim)
    shape = jnp.shape(position[_NOISE])
    squares = _sums_of_shape(jnp.square(y.astype(outputs.dtype) - outputs), shape)
    count = outputs.size // math.prod(shape)
    c, d = numbers_of(prior.likelihood[_NOISE], outputs.dtype)
    of_prior = _power(posterior.prior_power, outputs.dtype)
    of_likelihood = _power(posterior.likelihood_power, outputs.dtype)
    return (
        of_prior * c + of_likelihood * count / 2,
        of_prior * d + of_likelihood * squares / 2,
    )


def _draw(
    key: PRNGKeyArray, conditionals: Sequence[tuple[Array, Array]], old: Sequence[Array]
) -> tuple[list[Array], Bool[Array, ""]]:
    """Return log(tau) of all draws, and whether none of them overflowed and is the old value.

    All at once: the program of a Gamma variable is long, and takes a while to compile.
    """
    old = [jnp.asarray(value) for value in old]
    wide = float_dtype(widest_float(old))

    def in_one(numbers: Sequence[Array]) -> Array:
        pairs = zip(numbers, old, strict=True)
        each = [jnp.broadcast_to(n, o.shape).reshape(-1).astype(wide) for n, o in pairs]
        return jnp.concatenate(each)

    concentration, rate = (in_one([pair[i] for pair in conditionals]) for i in (0, 1))
    before = in_one(old)
    # The logarithm itself is drawn: of a small concentration, the Gamma variable underflows.
    log_gamma = jax.random.loggamma(key, concentration, dtype=wide)
    new = log_gamma - jnp.log(rate)
    is_sound = jnp.isfinite(new)
    new = jnp.where(is_sound, new, before)
    ends = list(itertools.accumulate(value.size for value in old))
    parts = [
        new[end - value.size : end].reshape(value.shape).astype(value.dtype)
        for end, value in zip(ends, old, strict=True)
    ]
    return parts, jnp.all(is_sound)


def _is_conjugate(law: Any) -> bool:
    """Whether a prior of the noise scale is of a Gamma precision, one or one a column."""
    base = base_distribution(law)
    return isinstance(base, LogGamma) and base.exponent == -0.5


def _sums_of_shape(values: Array, shape: tuple[int, ...]) -> Array:
    """Return the sums of all values that a number of an array of this shape is broadcast to."""
    first = values.ndim - len(shape)
    axes = tuple(i for i in range(values.ndim) if i < first or shape[i - first] == 1)
    return jnp.sum(values, axis=axes).reshape(shape)


def _power(power: ArrayLike | None, dtype: Any) -> Array:
    return jnp.ones((), dtype) if power is None else jnp.asarray(power, dtype)
