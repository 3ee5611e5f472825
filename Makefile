# Two commands matter: `make run` and `make test`. Both set up .venv the first time.
PYTHON ?= python3
PARAMS ?=
RUN ?=
OWNER ?=
TAG ?=
PYTHONS ?= python3.12 python3.13
# `make test-trl`: the newest TRL whose formulas the losses are compared with.
TRL := trl==1.16.0
# `make test-verifiers`: packages that grade answers, to compare with and to try the lint on.
VERIFIERS := math-verify==0.9.0 reasoning-gym==0.1.25
# `make test-browser`: what drives the browser, and a file for what was measured, such as tests/browser/result.json.
BROWSER := playwright==1.65.2
RESULT ?=
VENV := .venv
READY := $(VENV)/.ready
NEEDED := -r requirements.txt
# `make test-py`: what needs no torch, the packages it does need, and at least how many tests that must be.
TESTS_PY := tests/sandbox tests/rewards tests/tasks tests/gallery tests/lint tests/evaluation/test_compare.py tests/evaluation/test_breakdown.py \
  tests/display/test_display.py tests/tools/test_release.py
NEEDED_PY := numpy scipy datasets matplotlib packaging pytest pytest-timeout hypothesis PyYAML
LEAST_PY := 1500
export PYTHONDONTWRITEBYTECODE := 1

.DEFAULT_GOAL := help
.PHONY: help help-run run deeper prepare tasks rewards sources watch test test-slow test-py test-trl test-verifiers test-browser test-colab hacksuite bench-gpu try-gpu lint links tiny release clean

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' Makefile
	@echo 'Settings go with make run: TASK=math LEARNING_RATE=1e-5 MAX_STEPS=10 NAME=folder-under-runs. make help-run lists them.'

help-run: $(READY) ## list the settings of make run, with their defaults
	@$(VENV)/bin/python -m helpers.run --list settings

# The variables of the command line, all but those of make itself, are settings: helpers/run/arguments.py reads them.
run: $(READY) ## run the five notebooks in order; results under runs/; DETACH=1 goes on when the terminal closes
	@$(VENV)/bin/python -m helpers.run --from-make $(PARAMS)

deeper: $(READY) ## run the notebooks that prove, in notebooks/deeper
	@$(VENV)/bin/python -m helpers.run --deeper --from-make $(PARAMS)

prepare: $(READY) ## write a data set and its report: TASK=name DATA=file N=rows OUT=folder; SOURCE=name for sets of the hub, N of the pool
	@$(VENV)/bin/python -m helpers.run.prepare --from-make $(PARAMS)

tasks: $(READY) ## list the tasks
	@$(VENV)/bin/python -m helpers.run --list tasks

rewards: $(READY) ## list the rewards and the presets
	@$(VENV)/bin/python -m helpers.run --list rewards

sources: $(READY) ## list the data sets of the hub that SOURCE can take
	@$(VENV)/bin/python -m helpers.run --list sources

watch: $(READY) ## follow a run from another shell: RUN=name-or-folder, or the newest
	@$(VENV)/bin/python -m helpers.display.watch '$(RUN)'

test: $(READY) $(VENV)/triton-3.6.0 ## run all but the slow tests, every notebook included, on two to four cores (14 minutes)
	@$(VENV)/bin/python -m pytest -n auto --maxprocesses 4 --dist worksteal

test-slow: $(READY) $(VENV)/triton-3.6.0 ## the other tests: lessons, controls, kills, other cards, a kernel for each fault (two hours)
	@$(VENV)/bin/python -m pytest -m slow --timeout 7200

test-py: ## the tests that need no torch, on each of PYTHONS="python3.12 python3.13"
	@for python in $(PYTHONS); do "$$python" -c "" 2>/dev/null || { \
	  echo "There is no $$python: install it, or name those you have, as in make test-py PYTHONS=python3.12." >&2; \
	  exit 1; }; done
	@set -e; for python in $(PYTHONS); do \
	  venv=.venv-python$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	  $(MAKE) -s $$venv/.ready VENV=$$venv PYTHON=$$python NEEDED='$(NEEDED_PY)'; \
	  $$venv/bin/python --version; \
	  $$venv/bin/python -m pytest $(TESTS_PY); \
	  count=$$($$venv/bin/python -m pytest --collect-only $(TESTS_PY) | grep -c ::) || true; \
	  [ "$$count" -ge $(LEAST_PY) ] || { \
	    echo "Only $$count tests were found and there must be $(LEAST_PY): see to TESTS_PY in the Makefile." >&2; exit 1; }; done

test-trl: ## losses and gradients beside TRL's own trainer, in an environment of its own
	@$(MAKE) -s .venv-trl/.ready VENV=.venv-trl NEEDED='$(NEEDED) $(TRL)'
	@OMP_NUM_THREADS=1 .venv-trl/bin/python -m pytest tests/trl -rs

test-verifiers: ## answers beside math-verify, the lint on reasoning-gym, in an environment of their own
	@$(MAKE) -s .venv-verifiers/.ready VENV=.venv-verifiers NEEDED='$(NEEDED) $(VERIFIERS)'
	@.venv-verifiers/bin/python -m pytest tests/verifiers -rs

test-browser: ## JupyterLab in a headless browser and Colab's kernel, in environments of their own; RESULT=file
	@$(MAKE) -s .venv-browser/.ready VENV=.venv-browser NEEDED='$(NEEDED) $(BROWSER)'
	@OMP_NUM_THREADS=1 BROWSER_RESULT='$(RESULT)' .venv-browser/bin/python -m pytest tests/browser -rs

test-colab: ## the five notebooks with the packages of Colab's image, in an environment of their own
	@$(PYTHON) -m tests.colab.run

hacksuite: $(READY) ## attack the sandbox with every program of the suite; with other Pythons, after make test-py: VENV=.venv-python3.12
	@$(VENV)/bin/python -m tests.sandbox.hacksuite

bench-gpu: ## on a GPU, with this machine's own PYTHON and torch: GPU tests and timings in nine minutes, in one file
	@$(PYTHON) -m tests.benchmarks.gpu

try-gpu: ## on a GPU such as Colab's T4, likewise: half an hour that says whether all of it works, as a text to report
	@$(PYTHON) -m tests.benchmarks.try_gpu

lint: $(READY) ## check the style, notebooks included
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check .

links: ## compare external links with their list of titles and, where there is a network, ask each page
	@$(PYTHON) -m tests.tools.links

tiny: $(READY) ## train the embedded model anew (about 15 minutes on two cores)
	@$(VENV)/bin/python -m helpers.tiny.train

release: ## write OWNER=name TAG=v1.2.3 wherever the address stands; commits nothing
	@$(PYTHON) -m tests.tools.release --owner='$(OWNER)' --tag='$(TAG)'

clean: ## remove the environments, the runs and what tools left behind
	rm -rf $(VENV) .venv-* runs .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Debian's python3 may lack ensurepip: then the environment is made without pip and filled from outside.
PIP_INSTALL = if [ -x $(VENV)/bin/pip ]; then PIP='$(VENV)/bin/python -m pip'; \
  else PIP='$(PYTHON) -m pip --python $(VENV)/bin/python'; fi; $$PIP install -q --disable-pip-version-check

$(READY): requirements.txt constraints.txt
	@$(PYTHON) -c 'import sys; ok = (3, 11) <= sys.version_info < (3, 14); sys.exit(None if ok else \
	  f"Python 3.11, 3.12 or 3.13 is needed and this is {sys.version.split()[0]}: make run PYTHON=python3.12, say.")'
	@rm -rf $(VENV)
	@echo 'Setting up $(VENV), a few minutes the first time ...'
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || $(PYTHON) -m venv --without-pip $(VENV)
	@$(PIP_INSTALL) $(NEEDED) -c constraints.txt
	@touch $(READY)

# Colab's Triton beside the newest: the kernels are compiled by both.
$(VENV)/triton-3.6.0: $(READY)
	@rm -rf $@ $@.part
	@$(PIP_INSTALL) --no-deps --target $@.part triton==3.6.0
	@mv $@.part $@
