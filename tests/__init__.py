"""The tests; `tests.kit` is the statistical test kit they share."""

import pytest

pytest.register_assert_rewrite("tests.kit.conformance")
