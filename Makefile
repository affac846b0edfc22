# `make demo` and `make test` are all the set-up there is.
PYTHON := .venv/bin/python
FILES := src tests examples
# snarkjs and circom, with which tests compare proofs and witnesses.
NODE := tests/node

WORKERS ?= 2
PYTEST := $(PYTHON) -m pytest -q -n $(WORKERS) --no-loadscope-reorder
# Without bytecode files every worker would rewrite the assertions of all tests again: 14 s.
unexport PYTHONDONTWRITEBYTECODE
# Files of every package that say within a minute whether a change holds.
QUICK := tests/compile_report/test_report.py \
	tests/test_public_names.py tests/test_settings.py tests/kernel/test_kernel.py \
	tests/calls/test_call.py tests/arrays/test_overlaps.py tests/common/test_lru.py \
	tests/conformance/test_interface.py tests/conformance/test_kernels.py \
	tests/spirv/test_module.py tests/primes/test_prime.py tests/primes/test_structure.py \
	tests/kernels/test_catalogue.py tests/plan/test_plan.py tests/plan/test_batch_plan.py \
	tests/vulkan/test_batch.py tests/vulkan/test_out.py tests/vulkan/test_persistent.py \
	tests/vulkan/test_faults.py tests/vulkan/test_graph.py tests/vulkan/test_memory.py \
	tests/webgpu/test_executor.py tests/webgpu/test_caches.py tests/cpu/test_backend.py \
	tests/cuda/test_cuda_exchange.py \
	tests/fields/test_operands.py tests/fields/test_refusals.py tests/fields/test_graphs.py \
	tests/curves/test_small_curves.py tests/ops/test_operation.py tests/msm/test_window.py \
	tests/hashes/test_byte_hash.py tests/merkle/test_proofs.py \
	tests/kzg/test_cell_proofs.py tests/groth16/test_witness_calculator.py tests/steps/test_step_order.py \
	tests/warm_up/test_works.py \
	tests/executor/test_executor.py tests/executor/test_map.py tests/executor/test_errors.py \
	tests/cluster/test_interface.py tests/telemetry/test_metrics.py \
	tests/bench/test_executor.py tests/report/test_page.py tests/cli/test_commands.py tests/soak/test_soak.py

.PHONY: demo test pytest test-slow test-quick lint kernels site clean

demo: .venv/runs
	@mkdir -p build
	$(PYTHON) -m gpu_executor.cli demo -o build/report.html

# The linters first, also under `make -j`: tests that take times would take those of the linters too.
# All tests are one run: the slow ones share setups, pipelines and a cluster with the others.
test: .venv/develops
	@$(MAKE) --no-print-directory lint
	$(PYTEST)

pytest: .venv/develops
	$(PYTEST) -m 'not slow'

test-slow: .venv/develops
	$(PYTEST) -m slow

test-quick: .venv/develops
	$(PYTEST) -m 'not slow' $(QUICK)

lint: .venv/develops
	$(PYTHON) -m ruff check --quiet $(FILES)
	$(PYTHON) -m ruff format --quiet --check $(FILES)
	$(PYTHON) -m mypy

kernels: .venv/develops
	$(PYTHON) -m gpu_executor.kernels.build

site: .venv/develops
	$(PYTHON) -m mkdocs build --strict

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

.venv/runs: pyproject.toml tools/system-parts
	@tools/system-parts run
	@test -x $(PYTHON) || python3 -m venv .venv
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --editable '.[webgpu]'
	@touch $@

.venv/develops: pyproject.toml tools/system-parts $(NODE)/package-lock.json
	@tools/system-parts develop
	@test -x $(PYTHON) || python3 -m venv .venv
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --editable '.[dev,webgpu]'
	@mkdir -p .venv/node && cp $(NODE)/package.json $(NODE)/package-lock.json .venv/node
	@npm ci --prefix .venv/node --omit=optional --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null
	@touch $@ .venv/runs
