# `make demo` and `make test` set up what they need; `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
STAMP := .venv/.installed
PYTEST := $(BIN)/python -m pytest -p no:cacheprovider
DEMO := env -u SWEEPER_DATABASE_URL -u SWEEPER_STORE_URL SWEEPER_HOME=$(CURDIR)/.demo/home
ARGS ?=
# The tests start thousands of processes, each of which would compile all our modules where this is set.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup system format style types static check test demo bench chaos soak clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

setup: $(STAMP) ## make .venv and install everything, when something changed

$(STAMP): pyproject.toml constraints.txt scripts/setup.sh
	@echo "setting up .venv (a few minutes the first time)"
	@scripts/setup.sh
	@touch $@

system: # programs of the operating system that some tests drive
	@scripts/system_packages.sh

format: $(STAMP) ## rewrite the sources in our format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

style: $(STAMP)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports

types: $(STAMP)
	@$(BIN)/mypy

static: style types

check: ## format, lint, types, floors and the fast tests
	@$(MAKE) -j2 --output-sync static
	@$(PYTEST) -m "not slow" -n 2 --dist loadfile $(ARGS)

test: ## everything but what make soak adds
	@$(MAKE) -j2 --output-sync static system
	@$(PYTEST) -m "not soak" -n 3 --dist loadfile $(ARGS)

demo: $(STAMP) ## run the example sweep on the embedded Postgres and a local store; again: nothing is trained
	@$(DEMO) $(BIN)/python scripts/demo.py

chaos: $(STAMP) ## kill the example sweep three times; compare with an undisturbed one, bit for bit
	@$(BIN)/python examples/digits/chaos.py $(ARGS)

soak: $(STAMP) ## the long tests; kill searches of every sampler twenty times, and a promotion; compare with undisturbed ones
	@$(PYTEST) -m soak -n 2 --dist loadfile
	@$(BIN)/python -m tests.acceptance.same $(ARGS)
	@$(BIN)/python -m tests.acceptance.same --workers 4 $(ARGS)
	@$(PYTEST) tests/acceptance/promotion.py

bench: $(STAMP) ## measure overheads and throughput beside other programs, all of benchmarks/
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python "$$script" $(ARGS); done

clean: ## remove what the demo left
	@test ! -d .demo || { $(DEMO) $(BIN)/sweeper db stop || true; rm -rf .demo; }
