# `make demo` and `make test` are all the set-up there is.
PYTHON := .venv/bin/python
FILES := src tests examples

.PHONY: demo test lint kernels clean

demo: .venv/runs
	$(PYTHON) -m gpu_executor.cli demo

test: lint
	$(PYTHON) -m pytest -q

lint: .venv/develops
	$(PYTHON) -m ruff check --quiet $(FILES)
	$(PYTHON) -m ruff format --quiet --check $(FILES)
	$(PYTHON) -m mypy

kernels: .venv/develops
	$(PYTHON) -m gpu_executor.kernels.build

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

.venv/runs: pyproject.toml tools/system-parts
	@tools/system-parts run
	@test -x $(PYTHON) || python3 -m venv .venv
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --editable '.[webgpu]'
	@touch $@

.venv/develops: pyproject.toml tools/system-parts
	@tools/system-parts develop
	@test -x $(PYTHON) || python3 -m venv .venv
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --editable '.[dev,webgpu]'
	@touch $@ .venv/runs
