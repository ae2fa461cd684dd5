# Each target installs what it needs into .venv: the demo NumPy, pluggy and Pillow, the others all of the extra "dev". They need
# Python >= 3.11. The tests also compile C and C++.
.DEFAULT_GOAL := help
.PHONY: help demo test test-all nightly coverage lint mutants faults levelzero compiled pure sanitized windows site site-version clean

# An installed name may not work (pyenv's shims, Debian's Python without venv), so each is tried. PYTHON=… overrides.
PYTHON ?= $(firstword $(foreach name,python3.13 python3.12 python3.11 python3.14 python3,$(shell \
    $(name) -c 'import ensurepip, sys, venv; assert sys.version_info >= (3, 11)' >/dev/null 2>&1 </dev/null && echo $(name))))
BIN := .venv/bin
READY := .venv/ready
DEMO_READY := .venv/demo-ready
# worksteal keeps most tests of one file in one worker, because they share fixtures and processes on a stand-in.
SPREAD := -n auto --dist worksteal
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# The targets of a usual day. Each other target is named on the page of its part: tests/mutants, tests/drivers, docs/contributing.
help:
	@echo "make demo      two processes share an image and a timeline semaphore, on the CPU"
	@echo "make test      the tests, in minutes; ARGS=… goes to pytest: make test ARGS=\"-n 0 tests/ipc/test_ipc.py\""
	@echo "make test-all  also the slow tests"
	@echo "make lint      the static checks"
	@echo "make site      the documentation, in build/site/index.html"
	@echo "make compiled  compile the append path in place; make pure removes it"
	@echo "make nightly   what takes too long for every push: loaders, Wine, mutants, both forms"
	@echo "make clean     remove the environment, caches and compiled modules"

# What a fresh machine needs, in two sizes. The large one has the small one in it. pip is not quiet, so that one sees it work.
INSTALL = python="$(PYTHON)"; \
	test -n "$$python" || { echo "xsem needs Python >= 3.11 with venv (Debian, Ubuntu: apt-get install python3-venv); PYTHON=… names it" >&2; exit 1; }; \
	echo "setting up .venv with $$python: $(1)"; \
	{ test -x $(BIN)/python || "$$python" -m venv .venv; } && \
	$(BIN)/python -m pip install --editable ".[$(2)]"

$(READY): pyproject.toml
	@$(call INSTALL,900 MB in a minute or two,dev) && touch $(DEMO_READY) $@

$(DEMO_READY): pyproject.toml
	@$(call INSTALL,120 MB in half a minute,demo) && touch $@

# The compiled part, in place. No other target compiles.
compiled: $(READY)
	@$(BIN)/python hatch_build.py

pure: $(READY)
	@$(BIN)/python hatch_build.py clean

demo: $(DEMO_READY)
	@$(BIN)/xsem demo

# Without .pyc files each worker compiles all tests again (5 s of CPU), and each process started by a test compiles xsem.
test test-all coverage: export PYTHONDONTWRITEBYTECODE :=
test test-all: $(READY)
	@command -v gcc >/dev/null && command -v g++ >/dev/null || echo "gcc or g++ is missing: tests of C and C++ code are skipped (Debian, Ubuntu: apt-get install gcc g++)"
	@$(BIN)/python -m pytest $(SPREAD) $(if $(filter test,$@),-m "not gpu and not slow") $(ARGS)

# In pure Python: a compiled module has no lines.
coverage: export XSEM_PURE := 1
coverage: export COVERAGE_FILE := $(CURDIR)/build/coverage/data
coverage: $(READY)
	@rm -rf build/coverage && mkdir -p build/coverage
	@$(BIN)/python -m coverage run -m pytest tests/backends/cuda $(SPREAD) $(ARGS)
	@tests/drivers/run cuda -- $(BIN)/python -m coverage run -m xsem conformance run --device cuda:0 --exporter host --quiet
	@$(BIN)/python -m coverage combine --quiet
	@$(BIN)/python -m coverage report

lint: $(READY)
	@$(BIN)/python tools/lint.py

mutants: $(READY)
	@$(BIN)/python tests/mutants/run.py $(ARGS)

faults: $(READY)
	@$(BIN)/python tests/mutants/compose.py $(ARGS)

sanitized: $(READY)
	@tests/sanitized $(ARGS)

levelzero: $(READY)
	@tests/drivers/levelzero-paths $(ARGS)

nightly:
	@.ci/nightly

windows: $(READY)
	@tools/windows/setup && tools/windows/check

# Not --quiet: it would also hide the warnings from --strict.
site: $(READY)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@$(BIN)/python tools/site_check.py build/site

# On the local branch gh-pages, beside the sites of other versions. A patch release takes the place of its minor version.
site-version: $(READY)
	@version=$$($(BIN)/python -c 'import xsem; print(xsem.__version__)') && export PATH="$(CURDIR)/$(BIN):$$PATH" && \
	mike deploy --update-aliases --title "$$version" "$${version%.*}" latest && mike set-default latest

clean:
	find xsem backends -name '*.so' -delete
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
