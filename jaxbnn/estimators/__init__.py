"""scikit-learn's interface: Bayesian networks that `fit` and `predict`, in pipelines and grids.

They need the extra `sklearn`, which is imported with the first of these names and not before. What
is fitted, and by which samplers, is what the command `jaxbnn fit` fits.
"""

import importlib
import importlib.util
import typing

if typing.TYPE_CHECKING:
    from jaxbnn.estimators.classifier import BayesianClassifier
    from jaxbnn.estimators.regressor import BayesianRegressor

__all__ = ["BayesianClassifier", "BayesianRegressor"]

_MODULES = {"BayesianClassifier": "classifier", "BayesianRegressor": "regressor"}


def _load(name: str) -> typing.Any:
    """Load an estimator when it is asked for.

    Raises
    ------
    ImportError
        scikit-learn is not installed.
    AttributeError
        No such name.
    """
    if name not in _MODULES:
        raise AttributeError(f"module 'jaxbnn.estimators' has no attribute {name!r}")
    if importlib.util.find_spec("sklearn") is None:
        raise ImportError(f"{name} needs scikit-learn; run `pip install 'jaxbnn[sklearn]'`.")
    return getattr(importlib.import_module(f"jaxbnn.estimators.{_MODULES[name]}"), name)


if not typing.TYPE_CHECKING:  # to which every name would be one that there is
    __getattr__ = _load
