"""The posterior that other samplers are usually run on, for the same network, prior and data."""

import jax.numpy as jnp
from jaxtyping import ArrayLike, Shaped

from jaxbnn.gibbs import IntermediateNoise
from jaxbnn.gibbs.validation import check_model
from jaxbnn.numerics import check_real
from jaxbnn.numerics.arrays import as_array, float_dtype
from jaxbnn.targets import Bernoulli, CrossEntropy, Gaussian, Posterior, normal_prior


def classical_posterior(
    model: IntermediateNoise, x: Shaped[ArrayLike, "..."], y: Shaped[ArrayLike, "..."]
) -> Posterior:
    """Return the posterior with noise at the output only: exp(-loss / (2 Delta)) times the prior.

    Piccioli et al., (2) and (3), read as in erratum A11; Delta is the model's last noise
    variance (erratum A10). Regression: squared error, so that Delta is the variance of Gaussian
    noise. Probit labels: cross-entropy of a softmax, or of a sigmoid; Delta = 1/2 is the usual
    likelihood, Delta = 2 its power 1/4. The prior is not tempered.

    Give its `log_density` to BlackJAX's HMC, NUTS and MALA; those of the intermediate-noise
    posterior itself take `model.log_density` with x and y bound. In the paper's tables the
    learning rate of HMC is BlackJAX's step size, and so is that of MALA (eta, erratum A15).

    Parameters
    ----------
    model
        Network, prior precisions and noise variances; may be traced.
    x, y
        Data, rows first.

    Raises
    ------
    ValueError
        Precisions that are not shaped like the parameters.
    TypeError
        A model without noise at its stages, such as a network; x that holds no real numbers.

    Examples
    --------
    >>> from jaxbnn.networks import mlp
    >>> model = IntermediateNoise(mlp((1, 1), bias=False), 2.0, weight_precision=4.0)
    >>> posterior = classical_posterior(model, jnp.ones((3, 1)), jnp.zeros((3, 1)))
    >>> one, zero = ({"w": jnp.ones((1, 1))},), ({"w": jnp.zeros((1, 1))},)
    >>> float(posterior.log_density_from(zero)(one))  # -3 / (2 * 2) - 4 / 2
    -2.75
    """
    check_model(model)
    check_real("x", x)
    delta = model.variance(len(model.stages) - 1, float_dtype(as_array(x).dtype))
    prior = normal_prior(
        model.network,
        weight_precision=model.weight_precision,
        bias_precision=model.bias_precision,
    )
    if model.output == "regression":
        return Posterior(model.network, prior, Gaussian(jnp.sqrt(delta)), x, y)
    if model.output == "probit":
        return Posterior(model.network, prior, CrossEntropy(delta), x, y)
    return Posterior(model.network, prior, Bernoulli(), x, y).tempered(1 / (2 * delta))
