"""The papers' experiments, run by `python -m experiments` (see `__main__` for the command)."""
