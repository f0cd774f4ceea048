"""Other people's tools: they run our kernels, give us their models, and read our draws."""

from jaxbnn.interop import arviz, blackjax, numpyro

__all__ = ["arviz", "blackjax", "numpyro"]
