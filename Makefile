# poetgen. `make demo` and `make test` are all the set-up there is.
PYTHON ?= python3
BIN := .venv/bin
.DEFAULT_GOAL := help

.PHONY: help setup demo test lint test-slow bench claims clean
help:            ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 14

setup: .venv/poetgen-ready ## install what is missing (apt packages, Python packages into .venv)
.venv/poetgen-ready: pyproject.toml tools/setup.sh
	@PYTHON=$(PYTHON) tools/setup.sh

demo: setup      ## fine-tune a watch's exercise recogniser to a new person on an emulated STM32F405
	@$(BIN)/python examples/watch/demo.py

lint: setup      ## ruff and mypy --strict
	$(BIN)/ruff check poetgen tests examples benchmarks tools
	$(BIN)/ruff format --check poetgen tests examples benchmarks tools
	$(BIN)/mypy

test: lint       ## everything that is checked before a change lands (about 10 minutes on 2 cores)
	@$(BIN)/python tools/sizes.py
	$(BIN)/pytest -n 2 -m "not slow"

test-slow: setup ## what takes longer
	$(BIN)/pytest -n 2 -m slow

bench: setup     ## kernels and planner; writes benchmarks/results/
	$(BIN)/python benchmarks/kernels.py
	$(BIN)/python benchmarks/planner.py

claims: setup    ## run the command that shows each point of docs/claims.md (POINT=2.5 for one)
	@$(BIN)/python tools/claims.py $(POINT)

clean:           ## remove what builds leave behind
	rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis
