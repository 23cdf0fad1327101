# `make` lists the targets: that list is the contract.
# Needs on the machine: make and python3 with venv. `make venv` installs all the rest into .venv.

PYTHON ?= python3
# Most tests wait for processes of their own: more of them at once than there are cores.
JOBS ?= 6
# Modules of tests/e2e side by side, each with machines of its own.
E2E_JOBS ?= 3
# Every process of the tests would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE
DESTDIR ?=
PREFIX ?= /usr
LIBDIR ?= $(PREFIX)/lib/checkpointd
UNITDIR ?= /lib/systemd/system
SHAREDIR ?= $(PREFIX)/share/checkpointd
CONFDIR := /etc/checkpointd
# The interpreter that the launcher names: the node's own, never one of a developer's.
NODE_PYTHON ?= /usr/bin/python3

VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input -qq
INSTALLED := $(VENV)/.installed
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
	$(PYTHON) -m venv --clear $(VENV)
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
	$(PYTEST) -n $(JOBS) --dist worksteal -m "not e2e and not package"

.PHONY: pythons
pythons:  ## `make test` on Python 3.10 to 3.14, as many as are here or in Debian (PYTHONS="3.10 3.14")
	tests/pythons $(PYTHONS)

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

.PHONY: config
config: $(INSTALLED)  ## Write etc/checkpointd.toml from the table of options in the code
	$(BIN)/python -c 'from checkpointd.settings import write; print(write.shipped(), end="")' > etc/checkpointd.toml

.PHONY: rbac
rbac: $(INSTALLED)  ## Write packaging/rbac from the table of permissions in the code
	$(BIN)/python -c 'from checkpointd.cli import rbac; rbac.write_shipped("packaging/rbac")'

.PHONY: e2e
e2e: $(INSTALLED)  ## On a real node: systemd, containerd, kubelet, control plane (root; builds them once)
	tests/e2e/setup
	$(PYTEST) -n $(E2E_JOBS) --dist loadfile -m e2e --timeout=1800

.PHONY: bench
bench: $(INSTALLED)  ## Measure against the budget on embedded nodes (BENCH="--pods 110 --quick"; --help)
	@$(BIN)/python -m tests.bench $(BENCH)

# Needs on the node: python3 and Debian's python3-grpcio python3-protobuf python3-psutil
# python3-pyinotify python3-requests python3-sdnotify python3-tomli python3-yaml. No .venv.
SOURCES := $(shell find checkpointd -name '*.py' 2>/dev/null)

.PHONY: install
install:  ## Install on this node (DESTDIR=, PREFIX=/usr): program, units, configuration, roles
	rm -rf $(DESTDIR)$(LIBDIR)
	for file in $(SOURCES); do install -D -p -m 0644 $$file $(DESTDIR)$(LIBDIR)/$$file || exit 1; done
	$(NODE_PYTHON) -m compileall -q -s '$(DESTDIR)' $(DESTDIR)$(LIBDIR)/checkpointd
	install -d -m 0755 $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(UNITDIR) $(DESTDIR)$(CONFDIR)/checkpointd.toml.d
	sed 's|@LIBDIR@|$(LIBDIR)|' packaging/launcher.in > $(DESTDIR)$(PREFIX)/bin/checkpointd
	chmod 0755 $(DESTDIR)$(PREFIX)/bin/checkpointd
	for unit in systemd/*; do \
	    sed 's|/usr/bin/checkpointd|$(PREFIX)/bin/checkpointd|' $$unit > $(DESTDIR)$(UNITDIR)/$${unit##*/} || exit 1; \
	    chmod 0644 $(DESTDIR)$(UNITDIR)/$${unit##*/}; \
	done
	for role in packaging/rbac/*.yaml; do \
	    install -D -p -m 0644 $$role $(DESTDIR)$(SHAREDIR)/rbac/$${role##*/} || exit 1; \
	done
	test -e $(DESTDIR)$(CONFDIR)/checkpointd.toml || \
	    install -p -m 0644 etc/checkpointd.toml $(DESTDIR)$(CONFDIR)/checkpointd.toml
	@test -n "$(DESTDIR)" || echo "Now: systemctl daemon-reload && systemctl enable --now checkpointd checkpointd-freeze"

.PHONY: uninstall
uninstall:  ## Remove what install put there, but for the configuration and /var/lib/checkpointd
	rm -rf $(DESTDIR)$(LIBDIR) $(DESTDIR)$(SHAREDIR)
	rm -f $(DESTDIR)$(PREFIX)/bin/checkpointd
	for unit in systemd/*; do rm -f $(DESTDIR)$(UNITDIR)/$${unit##*/}; done
	@test -n "$(DESTDIR)" || echo "Now: systemctl daemon-reload"

.PHONY: clean
clean:  ## Remove what building and testing left behind, and .venv
	rm -rf .venv .venv-* build dist .cache *.egg-info .coverage .coverage.* htmlcov .hypothesis \
	       .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
