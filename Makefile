# `make` alone lists the targets. PYTHON=... names the Python to build .venv with, when the search should not choose.
.DEFAULT_GOAL := help
.PHONY: help setup reproduce test lab readme lock clean
.NOTPARALLEL:
export PATH := $(CURDIR)/.venv/bin:$(PATH)
UV ?= uv

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /make \1|/' | awk -F'|' '{printf "  %-16s %s\n", $$1, $$2}'

setup: ## only make .venv, as every target does first; LIGHT=1 before the command leaves torch out
	@sh requirements/environment.sh

reproduce: ## run the paper notebooks and compare with the published numbers; ARGS="ARTEFACT -p name=value" for a part, FULL=1 to train anew
	@sh requirements/environment.sh
	@fairical-nb reproduce --jobs 2 $(if $(FULL),--full) $(ARGS)

test: ## notebooks in sync and clean, notebook tests, pytest
	@sh requirements/environment.sh
	@failed=0; \
	echo "== Notebooks in sync and clean"; python tests/notebooks/sync.py || failed=1; \
	echo "== Notebooks run"; OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 nbdev_test --n_workers 2 --timing || failed=1; \
	echo "== Tests"; python -m pytest -n 2 tests || failed=1; \
	exit $$failed

lab: ## open the notebooks in JupyterLab; ARGS="--no-browser" for its options
	@sh requirements/environment.sh lab
	@jupyter lab --ServerApp.root_dir="$(CURDIR)/nbs" $(ARGS)

readme: ## make README.md from nbs/index.ipynb
	@sh requirements/environment.sh
	@python docs/readme.py

lock: ## make requirements/lock.txt from settings.ini (needs uv)
	@command -v $(UV) >/dev/null || { echo "uv is not installed: run 'pip install uv', or name it: make lock UV=/path/to/uv" >&2; exit 1; }
	@python=$$(sh requirements/environment.sh python) && "$$python" requirements/lock.py $(UV)

clean: ## remove .venv, executed notebooks, built documentation and caches
	@rm -rf .venv runs _docs _proc build dist *.egg-info .pytest_cache .hypothesis .ruff_cache .snakemake
	@find nbs fairical_nb tests docs benchmarks data \( -name __pycache__ -o -name .ipynb_checkpoints \) -prune -exec rm -rf {} + 2>/dev/null || true
