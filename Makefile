# Needs nothing but Python 3.11. Two commands for users:
#   make score    install into .venv (once), then: python cli.py score-users $(ARGS)
#   make test     install the test extra too (once), then: pytest $(ARGS)
# For developers: make check (ruff, mypy, import-linter).
#
# ARGS      more arguments, e.g. make score ARGS="--dataset ml-1m --model BPR"
# PYTHON    another Python 3.11, e.g. make score PYTHON=/opt/python3.11/bin/python3
# PIP_ARGS  more arguments for pip, e.g. the CPU build of torch, which is much smaller:
#           make score PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"

VENV ?= .venv
ARGS ?=
PIP_ARGS ?=
BIN := $(VENV)/bin
IS_PYTHON_311 := import ensurepip, sys; sys.exit(sys.version_info[:2] != (3, 11))
PYTHON ?= $(shell for candidate in python3.11 "$$HOME"/.pyenv/versions/3.11*/bin/python3.11 \
	/usr/local/bin/python3.11 /usr/bin/python3.11 python3 python; do \
	if "$$candidate" -c '$(IS_PYTHON_311)' >/dev/null 2>&1; then echo "$$candidate"; break; fi; done)

.PHONY: score test check clean

score: $(VENV)/installed
	$(BIN)/python cli.py score-users $(ARGS)

test: $(VENV)/installed-test
	$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/installed-dev
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# Each stamp is touched after pip has succeeded, so that an interrupted installation starts again.
$(VENV)/installed-test: EXTRA := [test]
$(VENV)/installed-dev: EXTRA := [dev]
$(VENV)/installed $(VENV)/installed-test $(VENV)/installed-dev: pyproject.toml constraints.txt | $(VENV)/created
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt $(PIP_ARGS) -e '.$(EXTRA)'
	@touch $@

$(VENV)/created:
	@if [ -z "$(PYTHON)" ]; then \
		echo "error: Python 3.11 with its venv module was not found. Install it" \
			"(Debian: apt install python3.11-venv; macOS: brew install python@3.11)" \
			"or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; fi
	"$(PYTHON)" -m venv $(VENV)
	@touch $@
