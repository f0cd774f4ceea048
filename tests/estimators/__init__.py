"""What scikit-learn's own checks say of the estimators: `python -m tests.estimators`."""
