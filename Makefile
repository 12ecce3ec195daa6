# Everything works from a fresh clone with Python 3.11 or newer, git and make; `make help` lists the targets.
PYTHON ?= python3
VENV ?= .venv
PRESET ?= quick
# As in book/hmmbook/__main__.py: threads of torch shall not spin long while they wait for each other.
export GOMP_SPINCOUNT ?= 1000
TORCH := torch==2.13.0
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
CORES := $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
# How many notebooks are executed at a time.
SLOTS = $(or $(JOBS),$(CORES))
# A file's tests stay together, for what they share; those that start processes come first, as they take longest.
SIDE_BY_SIDE = --numprocesses $(or $(JOBS),2) --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
FORCE:
.PHONY: FORCE runs help install book test test-all lowest newest bench mutants damages proofs lint notebooks address copies lab serve pictures executed colab lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' Makefile

install: $(INSTALLED) ## make .venv with the exact versions of requirements.lock

$(INSTALLED): requirements.lock pyproject.toml
	@echo "installing into $(VENV), once: 3 GB, or 7 GB beside an NVIDIA driver, 1 to 4 minutes on two cores, longer where the network is slow"
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed; name one: make PYTHON=python3.12 ...")'
	@$(PYTHON) -c 'import ensurepip' || { echo "$(PYTHON) comes without its venv module (on Debian and Ubuntu: the package python3-venv)"; exit 1; }
	@echo "  1 of 4: an environment for Python, some seconds"
	@$(PYTHON) -m venv $(VENV)
	@echo "  2 of 4: the $$(grep -c '^[a-z0-9]' requirements.lock) packages of requirements.lock, hashes checked; 1 to 3 minutes"
	@.ci/install $(BIN)/pip
	@echo "  3 of 4: hmmlib itself, some seconds"
	@$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@# Kernels of this environment print no lines of their own, of local sockets before a run or of interrupts after it.
	@mkdir -p $(VENV)/etc/ipython && cp book/ipython_kernel_config.json $(VENV)/etc/ipython/
	@echo "  4 of 4: its loops, compiled for this machine, half a minute"
	@$(BIN)/python .ci/compile_loops.py
	@touch $@

book: $(INSTALLED) notebooks ## execute what has changed and build the book into _build/html; JOBS=1: one notebook at a time
	@echo "executing what has changed ($(PRESET)), $(SLOTS) at a time"
	@$(MAKE) --no-print-directory build/ledger.json
	@$(MAKE) --no-print-directory --keep-going --jobs $(SLOTS) runs
	@# After a build with a warning, or one that broke off, pages would count as done: forget what was read.
	@test ! -e _build/unfinished || rm -rf _build/.doctrees
	@mkdir -p _build && touch _build/unfinished
	$(BIN)/jupyter-book build . -W --keep-going --quiet
	@rm _build/unfinished
	@echo "the book: $(CURDIR)/_build/html/index.html (or: make serve)"
	@$(BIN)/python book/address.py

notebooks: $(INSTALLED) ## write the .ipynb twins of the text notebooks
	@$(BIN)/python book/notebooks.py

# What is executed depends on the files below. Their checksums are written anew only where one of them differs, so a
# checkout, which changes nothing but times, executes nothing. Any change of the library executes every page.
build/sums/library: FILES = hmmlib book/hmmbook requirements.lock
build/sums/data: FILES = results parameters/$(PRESET).yaml
build/sums/data: parameters/$(PRESET).yaml
build/sums/%: FORCE
	@mkdir -p $(@D)
	@find $(FILES) -type f ! -path '*/__pycache__/*' ! -name '.*' | LC_ALL=C sort | xargs cksum > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

build/ledger.json: build/sums/library
	@$(BIN)/python -m hmmbook ledger --out $@ --workers $(SLOTS) > build/ledger.txt
	@echo "  ledger: all verdicts are as recorded"

# A page's text is not among what its run depends on. The book is of the project's results, not of its user's.
RUNS := $(patsubst notebooks/%.md,build/executed/notebooks/%.ipynb,$(wildcard notebooks/*.md))
runs: export HMMBOOK_MINE := $(CURDIR)/build/results
runs: export IPYTHONDIR := $(CURDIR)/build/ipython
runs: export OMP_NUM_THREADS := $(shell expr \( $(CORES) + $(SLOTS) - 1 \) / $(SLOTS))
runs: $(RUNS)
build/executed/notebooks/%.ipynb: build/code/%.ipynb build/sums/library build/sums/data
	@$(BIN)/python book/execute.py $< $@ parameters/$(PRESET).yaml

# A copy that is there has no rule that would touch it.
COPIES := $(patsubst notebooks/%.md,mine/notebooks/%.ipynb,$(wildcard notebooks/*.md))
copies: $(COPIES) ## copy the notebooks to mine/notebooks, to work in; a copy that is there stays as it is
mine/notebooks/%.ipynb: | notebooks
	@mkdir -p $(@D)
	@cp notebooks/$*.ipynb $@

lab: copies ## open those copies in JupyterLab: LAB_ARGS=--no-browser
	$(BIN)/jupyter lab --FileContentsManager.preferred_dir=mine/notebooks $(LAB_ARGS)

address: $(INSTALLED) ## put your repository's address into every file that names it: URL=https://github.com/YOU/NAME
	@$(BIN)/python book/address.py $(URL)

# What Python compiles is kept, also where a machine's settings say otherwise: that is half a minute for each process.
test test-all: export PYTHONDONTWRITEBYTECODE =
test: $(INSTALLED) ## run the tests, two at a time: JOBS=1
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) $(PYTEST_ARGS)

test-all: export HMMLIB_SLOW = 1
test-all: book ## run also the tests that take minutes, and store what was tried
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) --record tests/results/all.json $(PYTEST_ARGS)

lowest: RESOLUTION = lowest-direct## run the library's tests with the lowest versions that pyproject.toml admits
newest: RESOLUTION = highest## the same with the newest versions: PYTHON=python3.14; TORCH=torch: torch too
lowest newest:
	$(PYTHON) -m venv --clear build/$@
	build/$@/bin/pip install --quiet uv
	@# By uv only where it is told which build to choose: pip may be set up to choose one.
	$(if $(UV_TORCH_BACKEND),VIRTUAL_ENV=build/$@ build/$@/bin/uv,build/$@/bin/python -m) pip install --quiet --no-deps $(TORCH)
	VIRTUAL_ENV=build/$@ build/$@/bin/uv pip install --quiet pytest hypothesis
	VIRTUAL_ENV=build/$@ build/$@/bin/uv pip install --quiet --resolution $(RESOLUTION) --editable .
	build/$@/bin/python -m pytest --library --record tests/results/$@.json $(PYTEST_ARGS)

bench: $(INSTALLED) build/peers/.installed ## time ours beside its peers: BENCH_ARGS="posteriors --quick"
	$(BIN)/python benchmarks/run.py $(BENCH_ARGS)

build/peers/.installed: benchmarks/peers.txt
	rm -rf build/peers
	$(PYTHON) -m venv build/peers
	build/peers/bin/pip install --quiet $(TORCH)
	build/peers/bin/pip install --quiet --requirement benchmarks/peers.txt
	@touch $@

mutants: OF_MUTANTS = OMP_NUM_THREADS=1 PYTHONPATH="$(CURDIR)/tests/support"
mutants: $(INSTALLED) build/mutmut/.installed ## change the library and see whether tests notice: MUTANTS="hmmlib.theory.heads*", JOBS=2
	build/mutmut/bin/python tests/support/mutation.py begin
	set -f; cd build/mutation && $(OF_MUTANTS) ../mutmut/bin/mutmut run --max-children $(or $(JOBS),1) $(MUTANTS)
	$(OF_MUTANTS) build/mutmut/bin/python tests/support/mutation.py store

damages: $(INSTALLED) ## put sixty mistakes into the library, one at a time, and see which the ledger alone notices
	$(BIN)/python tests/support/sixty.py

build/mutmut/.installed: $(INSTALLED)
	rm -rf build/mutmut
	$(BIN)/python -m venv build/mutmut
	@# The project's packages, but not the project itself: what is imported has to be the mutated copy.
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > build/project.pth
	mv build/project.pth $$(build/mutmut/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
	build/mutmut/bin/pip install --quiet mutmut==3.8.1
	@touch $@

# In the order in which they import each other.
PROOFS = ordered_fields definitions messages left_inverse section_3 appendix_c attention section_4 lifting appendix_d_lemmas appendix_d counterexamples needs_disjoint_spans lemma_d_9 exactness certificate relabelling
proofs: ## check the machine proofs of the theorems (needs Rocq with MathComp)
	@test -d "$$(coqc -where 2>/dev/null)/user-contrib/mathcomp/algebra_tactics" || { echo "the proofs need Rocq with MathComp and its \
	algebra-tactics. On Debian 12 or 13 run: apt install coq libcoq-mathcomp-algebra libcoq-mathcomp-algebra-tactics. Elsewhere, macOS \
	included, run: opam install coq.8.20.1 coq-mathcomp-algebra.2.3.0 coq-mathcomp-algebra-tactics.1.2.4"; exit 1; }
	@mkdir -p build/proofs && cp proofs/*.v build/proofs
	@for name in $(PROOFS); do echo "  $$name"; (cd build/proofs && coqc -q -w none -Q . hmm $$name.v) || exit 1; done
	@echo "all proofs are accepted"

lint: $(INSTALLED) ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

serve: book ## build the book and serve it on http://127.0.0.1:8000
	$(BIN)/python -m http.server 8000 --bind 127.0.0.1 --directory _build/html

pictures: $(INSTALLED) ## draw the README's picture from the stored trials
	$(BIN)/python book/readme_pictures.py

executed: book ## collect the executed notebooks as GitHub and nbviewer show them, in build/viewers (needs Chromium)
	$(BIN)/python book/viewers.py

colab: $(INSTALLED) notebooks ## run every notebook alone, in an environment that has only what Colab has
	$(BIN)/python book/colab.py $(COLAB_ARGS)

lock: ## bring requirements.lock up to pyproject.toml; LOCK_ARGS=--upgrade: all at their newest
	$(PYTHON) -m venv --clear build/lock
	build/lock/bin/pip install --quiet uv
	echo '$(TORCH)' > build/lock/torch.txt
	build/lock/bin/uv pip compile --quiet pyproject.toml --all-extras --universal --python-version 3.11 --generate-hashes \
	  --constraint build/lock/torch.txt --no-annotate --custom-compile-command 'make lock' --output-file requirements.lock $(LOCK_ARGS)

clean: ## remove everything that was built, except .venv
	rm -rf _build build
