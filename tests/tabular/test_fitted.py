"""Tests of tabular.fitted: what draws say of the columns."""

import numpy as np

from jaxbnn.tabular.fitted import relevance_scales


def test_scales_of_columns_are_posterior_means():
    log_precision = np.log([[[4.0, 0.01], [1.0, 0.01]]])
    found = relevance_scales({"log_precision": ({"w": log_precision},)})
    np.testing.assert_allclose(found, [0.75, 10.0])
