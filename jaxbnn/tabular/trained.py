"""Networks trained for a table of rows: by Adam, at a rate that falls until nothing moves.

At a rate that stays, the weights go on shaking, and of a target with little noise networks learn
no more than what the shaking leaves: trained like this their held-out scores are larger by half a
nat and more there, and no smaller elsewhere.
"""

import functools
import warnings
from typing import Any

import optax
from jaxtyping import PRNGKeyArray

from jaxbnn.ensembles import OptimisedStarts, optimised_starts
from jaxbnn.ensembles.arguments import default_batch_size
from jaxbnn.targets import Posterior

_UPDATES = 12_000
_MOST_EPOCHS = 1000
_RATE = 0.01


def trained(
    key: PRNGKeyArray, posterior: Posterior, num_networks: int, *, validation: float, **options: Any
) -> OptimisedStarts:
    """Return `optimised_starts`, each as it was in the epoch that was best on rows held out.

    Of networks that diverge no warning tells, since its arguments are not the caller's:
    `OptimisedStarts.diverged` has them.

    Parameters
    ----------
    key, posterior, num_networks, validation
        As in `optimised_starts`.
    options
        Its `checkpoint`, `mesh` and `progress`.
    """
    kept = len(posterior.x) - round(validation * len(posterior.x))
    updates = kept // default_batch_size(kept)
    epochs = min(max(_UPDATES // updates, 1), _MOST_EPOCHS)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "training diverged")
        return optimised_starts(
            key,
            posterior,
            num_networks,
            optimizer=_optimizer(epochs * updates),
            validation=validation,
            patience=epochs,
            max_epochs=epochs,
            **options,
        )


# The same object for as many updates, so that the program is compiled once.
@functools.lru_cache
def _optimizer(num_updates: int) -> optax.GradientTransformation:
    return optax.adam(optax.cosine_decay_schedule(_RATE, num_updates))
