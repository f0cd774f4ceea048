"""The command's processor cores: a device of JAX each, since chains do not wait for each other."""

import contextlib
import os

import jax


def use_cores(most: int) -> None:
    """Let JAX have a device for each core that this process may use, `most` at most.

    Where it has begun to compute already, or the user says how many by XLA_FLAGS, all stays as it
    is.
    """
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", min(cores, most))
