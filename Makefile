# Each target sets up all it needs: a virtual environment in .venv with pinned versions.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

PEERS := benchmarks/peers/.venv

# Tests and commands start many processes, which would compile the package anew each.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-programs test-all mutation check docs bench peers clean

help:
	@echo "make demo           train six methods on the built-in world, compare them, find new facts"
	@echo "make test           the fast tests of the code"
	@echo "make test-programs  those that start Flower's programs, a browser or the commands of docs"
	@echo "make test-all       all tests, slow ones too"
	@echo "make mutation       do the tests of methods and messages notice 300 small changes of the code?"
	@echo "make check          format, lint, types, layers and the documentation's site"
	@echo "make docs           the documentation as a site, in site/"
	@echo "make bench          the benchmarks; each prints JSON on its last line"
	@echo "make peers          a round of ours beside pfl's and Flower's; about seven minutes"

# torch comes first and alone: any looser request may pull gigabytes of GPU libraries.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check $$(grep '^torch==' constraints.txt)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,docs,arrow,fast,flower-simulation,minilm,lora,privacy,studio]'
	$(BIN)/python -m fedrel.extractors.pcnn.all_kernels training gradients & \
	$(BIN)/python -m fedrel.extractors.pcnn.all_kernels scoring noised && wait $$!
	@touch $(READY)

demo: $(READY)
	$(BIN)/fedrel demo

test: $(READY)
	$(BIN)/pytest -n auto --dist loadfile -m "not slow and not programs"

test-programs: $(READY)
	$(BIN)/pytest -n auto --dist loadfile -m "programs and not slow"

test-all: $(READY)
	$(BIN)/pytest -n auto --dist loadfile

mutation: $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[mutation]'
	nice $(BIN)/python -m tests.mutation --out results/mutation.json

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) --no-print-directory docs

# NO_MKDOCS_2_WARNING: we pin MkDocs 1.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(READY)
	$(BIN)/python benchmarks/pcnn.py
	$(BIN)/python benchmarks/round.py
	$(BIN)/python benchmarks/heads.py
	$(BIN)/python benchmarks/dp_sgd.py
	$(BIN)/python benchmarks/reading.py
	$(BIN)/python benchmarks/checksums.py
	$(BIN)/python benchmarks/cold_start.py
	$(BIN)/python benchmarks/scale.py
	$(BIN)/python benchmarks/transformer.py
	$(BIN)/python benchmarks/document.py
	$(BIN)/python benchmarks/engines.py
	$(BIN)/python benchmarks/resident.py
	$(BIN)/python benchmarks/studio.py

$(PEERS)/ready: benchmarks/peers/requirements.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check $$(grep '^torch==' $<)
	$(PEERS)/bin/pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

peers: $(READY) $(PEERS)/ready
	$(BIN)/python benchmarks/peers/run.py

clean:
	rm -rf .venv $(PEERS) runs site
