# Speculative Decoding, Live. The two commands are `make serve` and `make test`; `make` lists all.
# Needs Python 3.11 or newer and make; everything else is installed into .venv.

VENV := .venv
PY := $(VENV)/bin/python

# The stamps carry the checksum of what decides the environment (and where it is: an editable
# install holds a path), so that nothing is reinstalled until one of these changes.
KEY := $(shell { cat pyproject.toml constraints.txt; pwd; } | cksum | cut -d' ' -f1)
RUN := $(VENV)/.installed-run-$(KEY)
DEV := $(VENV)/.installed-dev-$(KEY)

# make serve ARGS="--port 6001", make test ARGS="-k cache": passed on as they are.
ARGS :=
export PYTHON TORCH_INDEX SHOW

.DEFAULT_GOAL := help
.PHONY: engines engines-check ray-check bench-peers help serve test test-thorough test-quick lint format bench bench-figures bench-page bench-site screenshots load soak gpu-check recipes audit pin clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "  ARGS=\"...\" is passed on: make serve ARGS=\"--port 6001\", make test ARGS=\"-k cache\"."
	@echo "  PYTHON=... chooses the interpreter, TORCH_INDEX=... an index to take torch from,"
	@echo "  SHOW=0 or SHOW=1 whether make serve opens a browser (default: when there is one)."

$(RUN):
	@sh scripts/install.sh $@

$(DEV):
	@sh scripts/install.sh $@ dev

serve: $(RUN) ## open the article at http://localhost:5006
	@$(PY) -m app serve $(ARGS)

test: $(DEV) lint ## install what the tests need, browser and weights included; lint; run all tests
	$(PY) -m tests.prepare
	SD_REQUIRE_WEIGHTS=1 $(PY) -m pytest -n 2 --dist loadgroup $(ARGS)

test-thorough: $(DEV) ## what make test leaves out: every figure, other browsers, site generators
	$(PY) -m tests.prepare
	SD_REQUIRE_WEIGHTS=1 $(PY) -m pytest -n 2 --dist loadgroup -m thorough $(ARGS)

test-quick: $(DEV) ## the tests that need neither a browser nor real weights
	$(PY) -m pytest -n 2 --dist loadgroup -m "not browser and not real_model and not slow and not thorough" $(ARGS)

lint: $(DEV) ## ruff (rules and format) and mypy
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: $(DEV) ## rewrite the code as ruff wants it
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: $(RUN) ## measure the engine on this machine, one JSON line
	@$(PY) -m kernels bench --json $(ARGS)

bench-figures: $(DEV) ## frame times while a figure is dragged, one JSON line each
	@$(PY) -m tests.browser.bench_figures

bench-page: $(DEV) ## Lighthouse on the built article, mobile profile, one JSON line (needs Node.js)
	@$(PY) -m scripts.bench_page $(ARGS)

bench-site: $(DEV) ## what a reader of the built copy downloads, one JSON line
	@$(PY) -m tests.browser.bench_site

load: $(RUN) ## two hundred readers at once on a server of its own: what they and it go through
	@$(PY) -m app load $(ARGS)

soak: $(DEV) ## two thousand sessions opened and closed: is the server's memory flat?
	@$(PY) -m tests.app.soak $(ARGS)

ENGINES := build/engines

engines: $(RUN) ## install vLLM, llama.cpp and Ray, each into an environment of its own, ENGINES=folder
	@sh scripts/engines.sh $(ENGINES) vllm llama ray

engines-check: $(RUN) ## race real vLLM and llama.cpp servers, and break one in mid-race; ARGS="vllm"
	@sh scripts/engines.sh $(ENGINES) vllm llama
	@$(PY) scripts/engines_check.py $(ENGINES) $(ARGS)

ray-check: $(RUN) ## a Ray cluster of two replicas here: ten queued races, one replica killed in mid-race
	@sh scripts/engines.sh $(ENGINES) ray
	@$(ENGINES)/ray/bin/python scripts/ray_check.py

bench-peers: $(RUN) ## the engine beside vLLM's and llama.cpp's servers, one JSON line
	@sh scripts/engines.sh $(ENGINES) vllm llama
	@$(PY) -m kernels bench --json --no-peers --every 6 --peers vllm,llama.cpp --engines $(ENGINES) $(ARGS)

screenshots: $(DEV) ## every figure in every language, theme and width, to be looked at
	@$(PY) -m scripts.screenshots $(ARGS)

gpu-check: $(RUN) ## measure and check what needs a GPU, in ten minutes; writes build/gpu-check.json
	@$(PY) -m kernels gpu-check --json build/gpu-check.json --records build/gpu-records $(ARGS)

RECIPES := build/recipes

recipes: $(DEV) ## figures in JupyterLab, Notebook, nbclassic, Jupyter Book and Hugo, each driven once
	test -x $(RECIPES)/bin/python || $(PY) -m venv $(RECIPES)
	$(RECIPES)/bin/python -m pip install --quiet jupyterlab notebook nbclassic anywidget hugo 'jupyter-book<2'
	$(PY) -m tests.prepare
	SD_RECIPES=$(RECIPES) $(PY) -m pytest tests/recipes --timeout 900 $(ARGS)

audit: $(DEV) ## look the pinned versions up in the public list of known vulnerabilities
	$(PY) -m venv build/audit
	build/audit/bin/python -m pip install --quiet pip-audit
	build/audit/bin/python -m pip_audit --strict --disable-pip --no-deps -r constraints.txt $(ARGS)

pin: $(DEV) ## write constraints.txt from what .venv holds now
	{ grep '^#' constraints.txt; $(PY) -m pip freeze --exclude-editable \
	  | grep -v '^nvidia-\|^cuda-' | sed 's/+[a-z0-9.]*$$//'; } > constraints.new
	mv constraints.new constraints.txt

clean: ## remove caches and build products; .venv and fetched weights stay
	rm -rf build dist site screenshots .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find app content figures kernels tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +
