"""Predictions for people: means, intervals, probabilities, and whether they are calibrated."""

from jaxbnn.prediction.calibration import (
    Reliability,
    coverage,
    expected_calibration_error,
    reliability,
)
from jaxbnn.prediction.predictions import ClassPrediction, NumberPrediction, predict
from jaxbnn.prediction.scoring import ClassScores, NumberScores, scores

__all__ = [
    "coverage",
    "expected_calibration_error",
    "predict",
    "reliability",
    "scores",
]
