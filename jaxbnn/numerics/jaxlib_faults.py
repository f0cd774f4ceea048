"""Releases of jaxlib that compute wrong numbers, and a sentence for who runs one of them."""

import os
import warnings

# On CPUs, float32 and float64: a matrix product and a sum after it, compiled into one, may leave
# rows out or read what nobody wrote (github.com/jax-ml/jax/issues/39103 and 39257). A posterior's
# log density is such a product and sum.
WRONG_SUMS = ("0.10.2", "0.11.0")
_WITHOUT = "--xla_cpu_experimental_ynn_fusion_type="


def warn_of_wrong_sums(version: str | None = None) -> None:
    """Warn if this jaxlib, or one of the version given, computes wrong sums on CPUs.

    Examples
    --------
    >>> warn_of_wrong_sums("0.10.1")
    """
    if version is None:
        import jaxlib

        version = str(jaxlib.__version__)
    flags = os.environ.get("XLA_FLAGS", "").split()
    if version in WRONG_SUMS and _WITHOUT not in flags:
        warnings.warn(
            f"jaxlib {version} computes some sums wrongly on CPUs, log densities among them: "
            f"install another release, or set XLA_FLAGS={_WITHOUT} before JAX is imported.",
            stacklevel=2,
        )
