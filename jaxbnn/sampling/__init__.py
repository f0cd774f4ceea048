"""The runner: chains, chunks, thinning, reducers, adaptation, checkpoints, devices."""

from jaxbnn.sampling.adaptation import Adaptation, dual_averaging, schedule
from jaxbnn.sampling.devices.hosts import LostProcess
from jaxbnn.sampling.draws import Draws, Reduced, complete
from jaxbnn.sampling.progress import Progress, format_progress
from jaxbnn.sampling.reducer import Reducer
from jaxbnn.sampling.reducers import (
    Acceptance,
    BatchMeans,
    Covariance,
    Moments,
    acceptance,
    batch_means,
    covariance,
    moments,
    predictive_mean,
)
from jaxbnn.sampling.runner import collect_position, sample
from jaxbnn.sampling.store.files import BadCheckpoint, CheckpointNotWritten
from jaxbnn.sampling.store.opened import open_draws
from jaxbnn.sampling.store.stored_array import StoredArray
from jaxbnn.sampling.windows import window_adaptation

__all__ = [
    "Adaptation",
    "BadCheckpoint",
    "CheckpointNotWritten",
    "Draws",
    "LostProcess",
    "Progress",
    "Reducer",
    "acceptance",
    "batch_means",
    "complete",
    "covariance",
    "dual_averaging",
    "format_progress",
    "moments",
    "open_draws",
    "predictive_mean",
    "sample",
    "schedule",
    "window_adaptation",
]
