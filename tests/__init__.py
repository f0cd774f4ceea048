"""The tests; `tests.kit` is the statistical test kit they share."""
