# The two commands of the README, and the pieces of `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
OLDEST := .venv-oldest

.PHONY: demo test test-oldest fuzz lint types unit proto clean

demo: $(STAMP)
	$(BIN)/python -m experiments demo --out runs/demo

test: lint types unit

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(STAMP)
	$(BIN)/mypy

unit: $(STAMP)
	$(BIN)/pytest

# The oldest libraries that pyproject.toml allows, in an environment of their own: same bits, same services.
test-oldest:
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --requirement tests/oldest.txt
	PYTHONPATH=$(CURDIR):$(CURDIR)/proto $(OLDEST)/bin/python -m pytest -p no:cacheprovider tests/test_golden_messages.py tests/shared_rng \
		tests/encoder tests/decoder tests/networks tests/integration/test_equivalence.py tests/integration/test_service_options.py

# Other examples every time, for longer than in `make test`.
fuzz: $(STAMP)
	GUMBELCAST_FUZZ_EXAMPLES=$(or $(EXAMPLES),2000) $(BIN)/pytest tests/test_fuzz.py

# Regenerate the wire package from its .proto files.
proto: $(STAMP)
	$(BIN)/python -m grpc_tools.protoc -I proto --python_out=proto --pyi_out=proto --grpc_python_out=proto \
		proto/gumbelcast/v1/*.proto

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) $(OLDEST) runs build dist *.egg-info
