# Two commands: `make audit` and `make test`. Each makes .venv and installs first; `make setup-full` adds all extras.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup-full audit test test-slow test-gpu bench lint docs clean

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[test]'
	touch $@

setup-full: .venv/installed
	$(BIN)/python -m pip install --quiet -e '.[test,full]'

audit: .venv/installed
	$(BIN)/python -m fdgpriv.audit --method stablefdg

# Compiled tests are kept even where PYTHONDONTWRITEBYTECODE is set, or each process would compile all of them anew.
test: .venv/installed
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist worksteal

test-slow: .venv/installed
	$(BIN)/python -m pytest -m slow

test-gpu: .venv/installed
	FDGPRIV_TEST_GPU=1 $(BIN)/python -m pytest -m gpu

bench: .venv/installed
	$(BIN)/python -m pytest -m bench -s tests/bench

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/installed
	$(BIN)/python -m pip install --quiet -e '.[test,docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

clean:
	rm -rf .venv build site *.egg-info
