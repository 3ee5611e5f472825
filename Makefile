# Two commands matter: `make run` and `make test`. Both set up .venv the first time.
PYTHON ?= python3
PROFILE ?= auto
PARAMS ?=
NAME ?=
VENV := .venv
READY := $(VENV)/.ready
export PYTHONDONTWRITEBYTECODE := 1

.DEFAULT_GOAL := help
.PHONY: help run test lint tiny clean

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-6s %s\n", $$1, $$2}' Makefile
	@echo 'PROFILE=tiny, NAME=folder-under-runs and PARAMS="MAX_STEPS=10 ITEMS=50" go with make run.'

run: $(READY) ## run the five notebooks in order; results under runs/
	@$(VENV)/bin/python -m helpers.run --profile '$(PROFILE)' --name '$(NAME)' $(PARAMS)

test: $(READY) ## run all tests, every notebook included
	@$(VENV)/bin/python -m pytest

lint: $(READY) ## check the style, notebooks included
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check .

tiny: $(READY) ## train the embedded model anew (about ten minutes on two cores)
	@$(VENV)/bin/python -m helpers.tiny.train

clean: ## remove the environment, the runs and what tools left behind
	rm -rf $(VENV) runs .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Debian's python3 may lack ensurepip: then the environment is made without pip and filled from outside.
$(READY): requirements.txt constraints.txt
	@$(PYTHON) -c 'import sys; ok = (3, 11) <= sys.version_info < (3, 14); sys.exit(None if ok else \
	  f"Python 3.11, 3.12 or 3.13 is needed and this is {sys.version.split()[0]}: make run PYTHON=python3.12, say.")'
	@rm -rf $(VENV)
	@echo 'Setting up $(VENV), a few minutes the first time ...'
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || $(PYTHON) -m venv --without-pip $(VENV)
	@if [ -x $(VENV)/bin/pip ]; then PIP='$(VENV)/bin/python -m pip'; \
	  else PIP='$(PYTHON) -m pip --python $(VENV)/bin/python'; fi; \
	  $$PIP install -q --disable-pip-version-check -r requirements.txt -c constraints.txt
	@touch $(READY)
