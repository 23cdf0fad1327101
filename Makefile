# `make` lists the targets: that list is the contract.
# Needs on the machine: make and python3 with venv. `make venv` installs all the rest into .venv.

PYTHON ?= python3
JOBS ?= 2
PREFIX ?= /usr
SYSCONFDIR ?= /etc
UNITDIR ?= /lib/systemd/system

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input -qq
INSTALLED := .venv/.installed
PYTEST := $(BIN)/pytest

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help
help:  ## This list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: venv
venv: $(INSTALLED)  ## Fill .venv with the tools and libraries of packaging/requirements-dev.txt (once)

# pyproject.toml is not a prerequisite: what is installed is decided by the pinned list alone.
$(INSTALLED): packaging/requirements-dev.txt
	$(PYTHON) -m venv --clear .venv
	$(PIP) install --no-deps $$(grep -E '^(setuptools|wheel)==' $<)
	$(PIP) install --no-build-isolation --no-deps -r $<
	$(PIP) install --no-build-isolation --no-deps -e .
	$(PIP) check
	touch $@

.PHONY: demo
demo: $(INSTALLED)  ## Lose the last API server and get it back, in a minute: no cluster, no root
	@$(BIN)/python -m tests.demo

.PHONY: test
test: $(INSTALLED)  ## All tests that need no root: unit, property, contract, integration, linters
	$(PYTEST) -n $(JOBS) -m "not e2e and not package"

.PHONY: unit
unit: $(INSTALLED)  ## The unit and property tests alone
	$(PYTEST) -q tests/unit tests/property

.PHONY: lint
lint: $(INSTALLED)  ## The linters and type checkers alone
	$(PYTEST) -q tests/test_linters.py

.PHONY: format
format: $(INSTALLED)  ## Format the code
	$(BIN)/ruff check --fix-only -q
	$(BIN)/ruff format -q

.PHONY: clean
clean:  ## Remove what building and testing left behind, and .venv
	rm -rf .venv build dist .cache *.egg-info .coverage .coverage.* htmlcov .hypothesis \
	       .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
