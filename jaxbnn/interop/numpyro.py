"""NumPyro both ways: our kernels in `numpyro.infer.MCMC`, and NumPyro models as our targets.

Between them stands the log density of a model in unconstrained coordinates u,

    log p(T(u), y) + log |det dT/du|,

with T the bijections of the sites' supports, as one term per number where NumPyro gives one.
"""

from jaxbnn.interop.numpyro_kernel import NumPyroKernel, NumPyroState, kernel
from jaxbnn.interop.numpyro_model import ModelPosterior, posterior_from_numpyro
from jaxbnn.interop.numpyro_networks import sample_network, site_names

__all__ = [
    "ModelPosterior",
    "NumPyroKernel",
    "NumPyroState",
    "kernel",
    "posterior_from_numpyro",
    "sample_network",
    "site_names",
]
