PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test test-all lint format lock clean

$(READY): requirements.lock pyproject.toml src/tacit/native/kernels.cpp
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $(READY)

demo: $(READY)  ## the main job on simulated dialogs; prints where the report is
	$(BIN)/tacit simulate customersim --dialogs 2000 --out demo/corpus.jsonl
	$(BIN)/tacit scan demo/corpus.jsonl --policy pii --out demo
	$(BIN)/tacit plan --mechanism selective --epsilon 8 --records 2000
	rm -rf demo/run
	$(BIN)/tacit train demo/corpus.jsonl --policy pii --mechanism selective --epsilon 8 --epochs 2 --tokenizer bpe --out demo/run
	$(BIN)/tacit audit demo/run
	$(BIN)/tacit report demo/run
	@echo "The pages: demo/scan.html and demo/run/release/report.html"

test: $(READY)  ## the tests, under ten minutes on two cores
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-all: $(READY)  ## every test, also the slow ones
	$(BIN)/python -m pytest -n 2

lint: $(READY)  ## format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)  ## put the code in shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock:  ## resolve the dependencies of pyproject.toml anew into requirements.lock
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install --quiet --disable-pip-version-check setuptools wheel ".[dev,train,hf]"
	(echo "# Made by 'make lock'. Installed by 'make'."; .venv-lock/bin/pip freeze --exclude tacit --all | grep -v -i -E '^(pip|tacit)[= @]' | sed 's/+cpu$$//') > requirements.lock
	rm -rf .venv-lock

clean:
	rm -rf .venv demo build
