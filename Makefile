# make train and make test are all that a newcomer needs: each sets up what is missing first.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
JOBS ?= $(shell nproc)
REPEAT ?= 20
FUZZ ?= 60
ARGS ?=

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
# Stamps lie in the environment whose state they tell: deleting it deletes them.
REQUIREMENTS := $(VENV)/.stamp-requirements
EDITABLE := $(VENV)/.stamp-editable
DOCS := $(VENV)/.stamp-docs

.PHONY: help setup train test lint format bench soak repeat fuzz stubs docs peers sanitize clean distclean system build

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: build $(EDITABLE) ## Install what is missing, build, and install the Python package (editable)

train: setup ## Train CartPole from configs/cartpole.yaml and show that it is solved
	@$(PY) .ci/train_demo.py configs/cartpole.yaml $(ARGS)

test: ## Set up, then run every test; the last line is "N passed, N failed"
	@$(MAKE) setup || { echo "set-up failed: no test was run"; echo "0 passed, 1 failed"; exit 1; }
	@$(PY) .ci/run_tests.py $(ARGS)

lint: setup ## clang-format, clang-tidy, ruff
	@.ci/setup-system --lint
	@$(PY) .ci/lint.py $(ARGS)

format: $(REQUIREMENTS) ## Format all sources in place
	@.ci/setup-system --lint
	@$(PY) .ci/lint.py --fix

bench: setup ## Train beside Sample Factory and Stable-Baselines3, and print the ratios
	@$(VENV)/bin/gristmill bench train $(ARGS)

soak: setup ## Ten minutes of kill -9 and SIGSTOP at every step; counts what is lost (gristmill soak)
	@$(VENV)/bin/gristmill soak $(ARGS)

repeat: setup ## Repeat the fault tests REPEAT (20) times over
	@$(PY) .ci/run_tests.py --repeat $(REPEAT) $(ARGS)

sanitize: setup ## All tests under ASan + UBSan and under TSan (long)
	@$(PY) .ci/run_tests.py --suites asan,tsan $(ARGS)

fuzz: $(REQUIREMENTS) ## Feed damaged segments, records, configurations and checkpoints, FUZZ (60) seconds each
	@.ci/setup-system --fuzz
	@$(PY) .ci/fuzz.py --seconds $(FUZZ) $(ARGS)

stubs: setup ## Regenerate the type stubs of the compiled modules
	@$(PY) .ci/make_stubs.py

docs: setup $(DOCS) ## Build the documentation site into build/docs; it opens without a network
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet -f docs/site/mkdocs.yml $(ARGS)
	@echo "open build/docs/index.html"

peers: $(EDITABLE) ## Install the benchmark's peers under .venv-peers
	@$(PY) -m gristmill.bench.peers

clean: ## Remove everything that was built
	rm -rf build python/gristmill/*.so python/gristmill/gristmill-worker python/gristmill/gristmill-soak
	find python tests .ci -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf .pytest_cache .hypothesis .ruff_cache

distclean: clean ## Remove the Python environments as well
	rm -rf $(VENV) .venv-peers

system:
	@PYTHON=$(PYTHON) .ci/setup-system

$(PY): | system
	$(PYTHON) -m venv $(VENV)

# torch alone first: whatever else is installed finds it there, and brings no other.
$(REQUIREMENTS): python/requirements/torch.txt python/requirements/runtime.txt python/requirements/dev.txt | $(PY)
	$(PIP) install -qq -r python/requirements/torch.txt
	$(PIP) install -qq -r python/requirements/dev.txt
	@touch $@

$(DOCS): python/requirements/docs.txt $(REQUIREMENTS)
	$(PIP) install -qq -r python/requirements/docs.txt
	@touch $@

build/release/build.ninja: CMakePresets.json $(REQUIREMENTS)
	cmake --preset release $(if $(wildcard $@),--fresh)
	@touch $@

build: build/release/build.ninja | system
	@cmake --build --preset release -j $(JOBS)

# After the build, because an editable install compiles nothing itself.
$(EDITABLE): pyproject.toml CMakeLists.txt $(REQUIREMENTS)
	$(PIP) install -qq --no-build-isolation --no-deps -e .
	@touch $@
