# Everything Headgate's developers and first users need. Each target sets up what it
# lacks, once, in .venv; after that nothing here needs a network.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

SERVE_STAMP := $(VENV)/.serve-installed
TEST_STAMP  := $(VENV)/.test-installed
PACKAGING   := pyproject.toml client/pyproject.toml

# The official descriptors, for comparison only: beside the environment and not in it,
# because the distribution overwrites files of others that are.
XDS_PROTOS := xds-protos==1.80.0

.PHONY: help run demo test lint format bench verify simulate protos docs clean

help:
	@echo "make demo    Envoy and Headgate with a burst that runs into a limit (VARIANT=tcp|unix|tls|network)"
	@echo "make run     serve examples/rules on gRPC 8081 and HTTP 8080"
	@echo "make test    lint and all tests"
	@echo "make lint    ruff and mypy"
	@echo "make format  let ruff format the code"
	@echo "make verify  the long forms that fill docs/accuracy.md and docs/failures.md"
	@echo "make simulate  bad days from random seeds, for SECONDS=60"
	@echo "make bench   measure, and print the figures that docs/ shows"
	@echo "make protos  generate messages and stubs from protos/"
	@echo "make docs    write docs/configuration.md from the settings table"
	@echo "make clean   remove everything that these targets made"

run: $(SERVE_STAMP)
	$(BIN)/headgate serve --rules examples/rules

demo: $(TEST_STAMP)
	$(BIN)/python examples/envoy/demo.py $(VARIANT)

test: lint
	$(BIN)/pytest tests

lint: $(TEST_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(TEST_STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(TEST_STAMP)
	$(BIN)/python benchmarks/serve.py
	$(BIN)/python benchmarks/guard.py
	$(BIN)/python benchmarks/rules.py
	$(BIN)/python benchmarks/origin_cost.py
	$(BIN)/python benchmarks/redis_script.py
	$(BIN)/python benchmarks/envoy.py

verify: $(TEST_STAMP)
	$(BIN)/python -m tests.accuracy.measure
	$(BIN)/python -m tests.fault.table

SECONDS ?= 60
simulate: $(SERVE_STAMP)
	$(BIN)/headgate simulate --seconds $(SECONDS)

protos: $(TEST_STAMP)
	$(BIN)/python protos/generate.py

docs: $(TEST_STAMP)
	$(BIN)/python -m headgate.config.document > docs/configuration.md

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Headgate needs Python 3.11 or later; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)

$(SERVE_STAMP): $(PACKAGING) | $(BIN)/python
	$(PIP) --editable ./client --editable .
	@touch $@

$(TEST_STAMP): $(PACKAGING) Makefile | $(BIN)/python
	$(PIP) --editable ./client --editable '.[test]'
	$(PIP) --no-deps --upgrade --target $(VENV)/xds $(XDS_PROTOS)
	@touch $(SERVE_STAMP) $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf *.egg-info client/*.egg-info server/*.egg-info client/build
