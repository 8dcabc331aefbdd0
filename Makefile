# make quickstart | test | test-quick | lint | check-extras | clean. Each target does all of its own set-up: a virtual
# environment and the pinned dependencies of a machine without a GPU (on a GPU machine see the README and
# constraints/cuda.txt).

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c

PYTHON ?= python3
VENV ?= .venv
CONSTRAINTS ?= constraints/cpu.txt
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# What only tests need on top (Ray: 100 MB and 60 packages; the extra tasks), so that the quickstart need not wait for it
TEST_STAMP := $(VENV)/.installed-for-tests

# One thread for each process by default: the tests start processes themselves, and torch would give each all cores.
TEST_ENV := OMP_NUM_THREADS=1

.PHONY: help quickstart test test-quick lint setup check-extras clean \
  results-collect results-dataset results-sft results-eval results-grpo
.DEFAULT_GOAL := help

help:
	@echo "make quickstart    the whole loop on a small slice, ends in runs/quickstart/report.html"
	@echo "make test          lint, types and every test of a machine without a GPU"
	@echo "make test-quick    the same without the tests marked slow: under ten minutes on two cores"
	@echo "make lint          ruff and mypy"
	@echo "make results-...   the proof on a GPU: results-collect, -dataset, -sft, -eval, -grpo (docs/proof.md)"
	@echo "make check-extras  does each extra of pyproject.toml resolve (needs a package index; minutes)"
	@echo "make clean         removes the virtual environment, caches and runs/"

setup: $(STAMP)

# The stamp is written last: an interrupted installation is done again.
$(STAMP): pyproject.toml $(CONSTRAINTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Passwright needs Python 3.11 or newer; set PYTHON=")'
	@test -x $(BIN)/python || { echo "set-up: creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "set-up: installing with $(CONSTRAINTS) (some minutes the first time)"
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -e '.[train,dev]' -c $(CONSTRAINTS) 2>&1 \
	  | tee $(VENV)/install.log | sed -unE '/\([0-9.]+ MB\)|^ERROR/p; s/^(Installing collected packages).*/  \1/p' \
	  || { echo "set-up: failed; all of pip's output is in $(VENV)/install.log"; exit 1; }
	@touch $@
	@echo "set-up: done"

$(TEST_STAMP): $(STAMP)
	@echo "set-up: installing the extras ray and tasks for the tests of executors and of building tasks"
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -e '.[train,dev,ray,tasks]' -c $(CONSTRAINTS) \
	  > $(VENV)/install-for-tests.log 2>&1 \
	  || { echo "set-up: failed; all of pip's output is in $(VENV)/install-for-tests.log"; exit 1; }
	@touch $@

quickstart: $(STAMP)
	@$(BIN)/python -m scripts.quickstart --config configs/quickstart.yaml

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy

# pytest last, so that its closing line is the last one
test: $(TEST_STAMP) lint
	$(TEST_ENV) $(BIN)/python -m pytest -q -n 2 --dist loadfile --durations=10

test-quick: $(TEST_STAMP) lint
	$(TEST_ENV) $(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not slow"

# The proof on a GPU, part by part (docs/proof.md); each goes on where it stopped. PASSWRIGHT: another installation's.
PASSWRIGHT ?= $(BIN)/passwright
BASE ?= HuggingFaceTB/SmolLM2-135M-Instruct
STUDENT ?= runs/sft/proof/student
REWARD ?= covered
SINGLE := --accelerate-config configs/accelerate/single.yaml

results-collect:
	$(PASSWRIGHT) collect --config configs/proof/collect.yaml $(ARGS)

results-dataset:
	$(PASSWRIGHT) dataset build --config configs/proof/dataset.yaml tokenizer=$(BASE) $(ARGS)

results-sft:
	$(PASSWRIGHT) train sft --config configs/proof/sft.yaml $(SINGLE) student.name_or_path=$(BASE) $(ARGS)

results-eval:
	$(PASSWRIGHT) evaluate-student --config configs/proof/eval.yaml --model $(BASE) --name base $(ARGS)
	$(PASSWRIGHT) evaluate-student --config configs/proof/eval.yaml --model $(STUDENT) --name sft $(ARGS)
	$(PASSWRIGHT) report runs/evaluate/base runs/evaluate/sft --out runs/report/proof

results-grpo:
	$(PASSWRIGHT) train grpo --config configs/proof/grpo_$(REWARD).yaml $(SINGLE) student.name_or_path=$(STUDENT) $(ARGS)

check-extras: $(STAMP)
	$(BIN)/python -m scripts.check_extras

clean:
	rm -rf $(VENV) runs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
