"""One module a benchmark: `run(out_dir, **options)` returns rows, as a study's run does.

`python -m experiments benchmark NAME` runs `experiments/benchmarks/NAME.py`; keyword-only
or defaulted parameters of its `run` are what `--set key=value` may give.
"""
