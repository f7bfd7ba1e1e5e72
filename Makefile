# Two environments, both plain venv + pip:
#   .venv      the three backends, for tests, lint and benchmarks
#   .venv-jax  the core and jax alone, for the demo (it proves that no other is needed)

PYTHON ?= python3
# A version that has a CPU build; a bare `torch` may take gigabytes of CUDA.
TORCH ?= torch==2.13.0
BACKENDS ?= jax tensorflow torch

export TF_CPP_MIN_LOG_LEVEL = 3
PIP = pip install --quiet --disable-pip-version-check

.PHONY: demo test lint bench clean

demo: .venv-jax/ready
	KERAS_BACKEND=jax .venv-jax/bin/python -m keras_idea train --output runs/demo --overwrite

test: .venv/ready .venv-jax/ready lint
	KERAS_BACKEND=jax .venv-jax/bin/python tests/core_alone.py
	@for backend in $(BACKENDS); do \
		echo "== $$backend"; \
		KERAS_BACKEND=$$backend .venv/bin/python -m pytest --durations=5 || exit 1; \
	done

lint: .venv/ready
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

bench: .venv/ready
	@for backend in $(BACKENDS); do \
		KERAS_BACKEND=$$backend .venv/bin/python benchmarks/step_cost.py || exit 1; \
	done

clean:
	rm -rf .venv .venv-jax build *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	.venv/bin/$(PIP) $(TORCH)
	.venv/bin/$(PIP) -e ".[all,dev]"
	touch $@

.venv-jax/ready: pyproject.toml
	$(PYTHON) -m venv .venv-jax
	.venv-jax/bin/$(PIP) -e ".[jax]"
	touch $@
