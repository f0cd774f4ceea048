# What contributors run. `make` alone lists the tasks.
PYTHON ?= python
RESULTS ?= results

.DEFAULT_GOAL := help
.PHONY: help install quick full long lowest docs serve lint check record wheel

help:  ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## / - /'

install:  ## everything that the other tasks need, into the active environment
	$(PYTHON) -m pip install -c constraints.txt -e ".[test,lint,docs]"

quick:  ## the tests of what you changed; FILE=jaxbnn/kernels/pcn.py for those of one file
	$(PYTHON) -m tests.changed $(FILE)

full:  ## all tests but the long ones
	$(PYTHON) -m pytest

long:  ## the long tests, in shards that can be stopped and resumed
	$(PYTHON) -m tests.long

lowest:  ## the tests with the lowest version of each package that pyproject.toml allows
	$(PYTHON) -m tests.lowest

docs:  ## the site, into ./site; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict

serve:  ## the site on this machine, made anew when a page changes
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs serve

lint:  ## style, types, who imports whom
	ruff check .
	ruff format --check .
	mypy
	lint-imports

check: lint full docs  ## what has to pass before a change is merged

record:  ## put the finished runs in RESULTS into record/, and the pages that compare them with the papers
	$(PYTHON) -m experiments record $(RESULTS)

wheel:  ## the wheel, into ./dist
	$(PYTHON) -m pip wheel --no-deps --wheel-dir dist .
