# The commands of headrace. `make help` lists them with their variables.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON   ?= python3
VENV     ?= .venv
GPUS     ?= $(shell n=$$(nvidia-smi -L 2>/dev/null | grep -c .); [ "$$n" -gt 0 ] && echo $$n || echo 2)
DEMO     ?= data/demo
SHARDS   ?= $(DEMO)/shards
INDEX    ?= $(DEMO)/index.xlsx
FEATURES ?= $(DEMO)/features
RUN      ?= runs/$(notdir $(patsubst %/,%,$(dir $(SHARDS:/=))))
SHARD_MB ?= 1024
MODEL    ?= train.models.CNN
ARGS     ?=

BIN      := $(VENV)/bin
READY    := $(VENV)/.ready
IS_DEMO  := $(filter $(DEMO)/shards,$(SHARDS:/=))
DATASET  := $(if $(IS_DEMO),$(DEMO)/shards/dataset.json)  # made on demand; other folders are yours

.PHONY: help setup demo inspect shards verify repair reindex train bench test test-slow test-gpu check format clean

help:  ## list the targets and their variables
	@echo "usage: make TARGET [VARIABLE=value ...]"
	@echo
	@grep -hE '^[a-z-]+:.*  ## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*  ## (.*)/  \1\t\2/' | expand -t 14
	@echo
	@echo "variables, as they are now:"
	@printf '  %-32s %s\n' \
	  'GPUS=$(GPUS)' 'ranks: one a GPU; without a GPU, processes on the CPU (gloo)' \
	  'INDEX=$(INDEX)' 'the index: .xlsx, .csv or .parquet (.xls, .xlsb)' \
	  'FEATURES=$(FEATURES)' 'folder of the feature files, one <a_id>.npy a sample (ARGS=--pattern for others)' \
	  'SHARDS=$(SHARDS)' 'folder of the shards' \
	  'SHARD_MB=$(SHARD_MB)' 'size of a shard, MiB' \
	  'RUN=$(RUN)' 'folder of the run: config, metrics, checkpoints; run again to go on' \
	  'MODEL=$(MODEL)' 'class path of the network' \
	  'DEMO=$(DEMO)' 'folder of the demo corpus' \
	  'ARGS=$(ARGS)' 'more options for the command behind a target; ARGS=--help explains them' \
	  'PYTHON=$(PYTHON)' 'interpreter, 3.11 or later' \
	  'VENV=$(VENV)' 'where everything is installed'

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $$($(PYTHON) --version) found; headrace needs Python 3.11 or later: make setup PYTHON=python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

setup: $(READY)  ## make .venv and install everything

$(DEMO)/index.xlsx: | $(READY)
	$(BIN)/python -m pipeline demo --out $(DEMO) $(if $(filter demo,$(MAKECMDGOALS)),$(ARGS))

demo: $(DEMO)/index.xlsx  ## make a small synthetic corpus with an Excel index in DEMO

inspect: $(READY) $(if $(IS_DEMO),$(DEMO)/index.xlsx)  ## say what INDEX and FEATURES hold and what is wrong with them; writes nothing
	$(BIN)/python -m pipeline inspect --index $(INDEX) --features $(FEATURES) $(ARGS)

shards: $(READY) $(if $(IS_DEMO),$(DEMO)/index.xlsx)  ## turn INDEX and FEATURES into SHARDS; goes on where it was stopped
	$(BIN)/python -m pipeline build --index $(INDEX) --features $(FEATURES) --shards $(SHARDS) --shard-mb $(SHARD_MB) $(ARGS)

$(DEMO)/shards/dataset.json: $(DEMO)/index.xlsx
	$(BIN)/python -m pipeline build --index $(DEMO)/index.xlsx --features $(DEMO)/features --shards $(DEMO)/shards

verify: $(READY) $(DATASET)  ## check every byte of SHARDS; exit 1 and a list if anything is wrong
	$(BIN)/python -m pipeline verify --shards $(SHARDS) $(ARGS)

repair: $(READY)  ## write damaged or missing shards of SHARDS again from FEATURES, byte for byte
	$(BIN)/python -m pipeline repair --shards $(SHARDS) --features $(FEATURES) $(ARGS)

reindex: $(READY)  ## make the manifest of SHARDS again from the shards, when it is lost or damaged
	$(BIN)/python -m pipeline reindex --shards $(SHARDS) $(ARGS)

train: $(READY) $(DATASET)  ## train MODEL on SHARDS with GPUS ranks; goes on where RUN was stopped
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/torchrun --standalone --nproc-per-node $(GPUS) -m train --shards $(SHARDS) --run-folder $(RUN) --model $(MODEL) $(ARGS)

bench: $(READY) $(DATASET)  ## measure what each rank's loader delivers, beside bare preadv
	$(BIN)/python -m shards bench --shards $(SHARDS) --ranks $(GPUS) $(ARGS)

test: $(READY)  ## run the tests that take seconds
	$(BIN)/python -m pytest -q -m "not slow and not gpu"

test-slow: $(READY)  ## run the tests that take longer
	$(BIN)/python -m pytest -q -m "slow and not gpu"

test-gpu: $(READY)  ## run the tests that need a CUDA device
	$(BIN)/python -m pytest -q -m gpu

check: $(READY)  ## format, lint, types, import contracts
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/basedpyright
	$(BIN)/lint-imports

format: $(READY)  ## format the code and mend what the linter can
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

clean:  ## remove the demo, its run and all caches (not .venv, not your data)
	rm -rf $(DEMO) runs/demo .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find pipeline shards train tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
