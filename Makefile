# Everything a newcomer types.  Needs CPython 3.11 or newer, its venv module, and make.

PYTHON ?= python3
VENV ?= .venv
# Two more than two cores: a quarter of the time tests wait for databases, browsers and clocks.
TEST_WORKERS ?= 4
CLUSTER ?= examples/clusters/h100-17-nodes.yaml
MODEL ?= llama-3-70b
WORKLOAD ?= examples/workloads/llama-3-70b-8k.yaml

# Containers often forbid bytecode beside the source; without it every process of a service compiles all of it anew.
unexport PYTHONDONTWRITEBYTECODE

BIN := $(VENV)/bin
PACKAGES := $(VENV)/.packages
PACKAGES_DEV := $(VENV)/.packages-dev
COMPILED_EXPERTS := $(VENV)/.compiled-experts
INSTALLED := $(VENV)/.installed
INSTALLED_DEV := $(VENV)/.installed-dev
TYPES := $(VENV)/.types
# Whoever makes several things at once (make --jobs) has cores for what is fetched, compiled and checked meanwhile.
WARM_UP = $(BIN)/python -m benchmarks.warm_up
# Loops that no command above comes to; should one of these tests fail, the run of all of them says so.  All files are
# collected, which compiles them once: each worker would do it.  Two workers, for nothing else runs beside them by then.
LATE_LOOPS = by_transitions_is_told or gains_by_mixing or no_assignment_is_faster \
  or no_assignment_beats_the_bound or comparison_prints_every_method
WARM_UP_TESTS = $(BIN)/python -m pytest -n 2 -k "$(LATE_LOOPS)"

.DEFAULT_GOAL := help
.PHONY: help demo test serve manual figures fetch-tools lint format benchmarks benchmark-placement benchmark-experts benchmark-replanning benchmark-replanning-service \
  benchmark-spot-replay lock sbom audit browser clean

help: ## list what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

demo: $(INSTALLED) ## plan Llama 3 70B on the shipped 17-node H100 cluster and print the plan with its proof
	$(BIN)/meshwright plan --cluster $(CLUSTER) --model $(MODEL) --workload $(WORKLOAD)

serve: $(INSTALLED) ## start the service with its embedded database
	$(BIN)/meshwright serve

test: $(INSTALLED_DEV) $(TYPES) browser ## run every check and test
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder -r fEs

manual: $(INSTALLED_DEV) ## build the manual, which the service then shows under /manual
	$(BIN)/sphinx-build --quiet --fail-on-warning --conf-dir docs/manual . app/web/manual_pages
	@echo "open app/web/manual_pages/index.html, or /manual of a running service"

figures: $(INSTALLED_DEV) ## draw the figures of the manual anew
	$(BIN)/python docs/manual/figures.py

fetch-tools: $(INSTALLED_DEV) ## fetch the sources of launchers and engines that exports are tested on, about 400 MB
	$(BIN)/python -m tests.app.exports.fetch_tools

lint: $(INSTALLED_DEV) ## check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED_DEV) ## lay the code out
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix-only --quiet .

benchmarks: $(INSTALLED_DEV) ## run every comparison, some hours, and write docs/benchmarks.md
	$(BIN)/python -m benchmarks.comparisons

PLACEMENT_PAGE = --page docs/placement_benchmark.md
benchmark-placement: $(INSTALLED_DEV) ## compare placements on 8 to 256 nodes, about two hours, and draw the curves
	$(BIN)/python -m benchmarks.placement compare $(PLACEMENT_PAGE) --figures docs/figures
	for clusters in steep enlarged; do $(BIN)/python -m benchmarks.placement compare --clusters $$clusters \
	  --sizes 64 256 --seeds 11 12 13 14 15 16 17 18 19 20 --no-real $(PLACEMENT_PAGE) || exit; done

benchmark-experts: $(INSTALLED_DEV) ## compare expert maps with other balancers, in and out of sample, a few minutes
	$(BIN)/python -m benchmarks.experts compare --page docs/experts.md

benchmark-replanning: $(INSTALLED_DEV) ## decide about clusters full of jobs after a leaf is lost, about two minutes
	$(BIN)/python -m benchmarks.replanning

benchmark-replanning-service: $(INSTALLED_DEV) ## ask a real server about failures at 256 nodes, some minutes
	$(BIN)/python -m benchmarks.replanning_service

benchmark-spot-replay: $(INSTALLED_DEV) ## live through a trace of spot nodes with decisions and with greedy ones, some minutes
	$(BIN)/python -m benchmarks.spot_replay

# uv installs in a sixth of pip's processor time, from the index that pip is set to; where it cannot, or pip is to use none,
# pip does, which knows more places and more ways to them.  Neither makes bytecode: it is made of what is imported, when it is.
PIP = $(BIN)/python -m pip --quiet --disable-pip-version-check
install = set="$$($(PIP) config list)"; index="$$(printf '%s\n' "$$set" | sed -nE "s/^.*[.]index.url='(.*)'/\1/p" | tail -n 1)"; \
  if printf '%s\n' "$$set" | grep -q '[.]no-index='; then false; else $(BIN)/uv pip install --quiet --system-certs \
    --python $(BIN)/python $${index:+--default-index "$$index"} $(1) 2>/dev/null; fi || $(PIP) install --no-compile $(1)
$(PACKAGES): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Meshwright needs Python 3.11 or newer, but $(PYTHON) is " + sys.version.split()[0] + "; name another one: make PYTHON=python3.12 ...")'
	@$(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu install python3-venv" >&2; exit 1; }
	@echo "installing into $(VENV) ..."
	@sed -n '/^uv==/,/[^\]$$/p' requirements-dev.lock > $(VENV)/uv.lock
	@$(PIP) install --no-compile --requirement $(VENV)/uv.lock 2>/dev/null || :
	@$(call install,--requirement requirements.lock)
	@$(call install,--no-deps --editable .)
	@touch $@

$(INSTALLED): $(PACKAGES)
	@echo "compiling the solver's inner loops ..."
	@$(WARM_UP) training >/dev/null
	@touch $@

$(COMPILED_EXPERTS): $(PACKAGES)
	@$(WARM_UP) experts >/dev/null
	@touch $@

$(PACKAGES_DEV): requirements-dev.lock $(PACKAGES)
	@echo "installing what the tests need ..."
	@$(call install,--requirement requirements-dev.lock)
	@touch $@

$(INSTALLED_DEV): $(PACKAGES_DEV) $(INSTALLED) $(COMPILED_EXPERTS)
	@$(WARM_UP_TESTS) >/dev/null 2>&1 || :
	@touch $@

# The type check of a first time takes a minute on one core, which the installation leaves idle; the test of it then
# looks only at what changed.
$(TYPES): $(PACKAGES_DEV)
	@$(BIN)/mypy >/dev/null 2>&1 || :
	@touch $@

# The browser tests use a Chromium that is there, or skip and say so; nothing else depends on it.  One without windows
# takes a third of the processor time, and fewer packages.
APT_INSTALL = DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends
browser:
	@if for name in chromium-headless-shell chromium chromium-browser google-chrome; do command -v $$name && break; done >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	  echo "installing chromium for the browser tests ..."; \
	  { apt-get update -qq && { $(APT_INSTALL) chromium-headless-shell || $(APT_INSTALL) chromium; } >/dev/null; } \
	    || echo "chromium could not be installed: the browser tests will be skipped" >&2; \
	else echo "no chromium found: the browser tests will be skipped; install the package chromium to run them" >&2; fi

# Pins come from the oldest supported Python, so that every newer one can install them as well; hashes are those of every
# file of a version, so that every machine finds its own.
LOCK = .venv-lock/bin/uv pip compile pyproject.toml --quiet --universal --generate-hashes --no-annotate --no-header \
	--python-version $$($(PYTHON) -c 'import platform; print(platform.python_version())')
lock: ## write requirements.lock and requirements-dev.lock anew (with Python 3.11)
	@$(PYTHON) -c 'import sys; sys.version_info[:2] == (3, 11) or sys.exit("lock with the oldest supported Python: make lock PYTHON=python3.11")'
	rm -rf .venv-lock
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet uv
	{ echo "# Everything needed at run time, exactly; made by 'make lock', valid on CPython 3.11 to 3.13."; $(LOCK); } > requirements.lock
	{ echo "# What tests and checks need on top of requirements.lock; made by 'make lock'."; echo "-r requirements.lock"; \
	  $(LOCK) --group dev --constraint requirements.lock \
	    $$(sed -nE 's/^([A-Za-z0-9._-]+)==.*/--no-emit-package \1/p' requirements.lock); } > requirements-dev.lock
	rm -rf .venv-lock

sbom: $(INSTALLED_DEV) ## write sbom.json: what is installed at run time, with hashes (CycloneDX)
	$(BIN)/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml --mc-type application \
	  --output-reproducible --output-file sbom.json

audit: $(INSTALLED_DEV) ## ask for known vulnerabilities of what is installed at run time; fails where nobody answers
	$(BIN)/pip-audit --requirement requirements.lock --require-hashes --disable-pip --strict --progress-spinner off \
	  || { echo "audit: known vulnerabilities are in the table above: raise these packages in pyproject.toml to a version that mends them, then make lock test."; \
	    echo "audit: without a table nobody answered: run it where Python's own package index can be reached over HTTPS, not a mirror, or set HTTPS_PROXY."; exit 1; }

clean: ## remove what was built, downloaded and cached, the virtual environment included
	rm -rf $(VENV) .venv-lock .tools sbom.json app/web/manual_pages build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .schemathesis .import_linter_cache .grimp_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
