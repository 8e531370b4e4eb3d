# The two commands of this repository:
#   make book    make .venv, run the notebooks, build the book, print the page to open
#   make test    the same .venv, then the tests that each change has to pass: some minutes
# and: make check (all tests, the slow ones too, from nothing: an hour), make pdf (the book as one file), make slides (of
# six chapters), make serve, make lint, make unit (the package's tests alone), make colab (the chapters as Colab runs
# them), make rounding (which claims hang on a processor's last bit?), make links (does every address answer?), make chapter
# and make exercise (skeletons), make clean.
# PYTHON=python3.12 chooses another Python, 3.11 or later; once .venv is made, it has its own: delete it first.
# Windows has no .venv/bin: use WSL there.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
TESTERS := $(VENV)/.testers
PORT ?= 8000
CORES ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
EXECUTE := execute
PYTEST := $(RUN) -m pytest -n $(CORES) --dist worksteal -q
OF_THE_BOOK := tests/test_book.py tests/test_browser.py

.PHONY: book executed pages pdf slides test check install lint unit colab rounding links serve clean chapter exercise

book: executed
	@$(MAKE) --no-print-directory pages

# What can't be had in ten minutes has a stand-in, and no notebook waits for it.
executed: $(INSTALLED)
	$(RUN) -m vit_tutorial data --minutes 10 mnist cifar10 vit_b_16
	$(RUN) book/build.py $(EXECUTE)

pages: $(INSTALLED)
	$(RUN) book/build.py html
	$(RUN) book/build.py slides

# The book as one file to hand out, from the pages that are built; it needs Chromium or Chrome.
pdf: $(INSTALLED)
	$(RUN) book/pdf.py

# The slides again, from the pages that are built; `make book` has made them, too.
slides: $(INSTALLED)
	$(RUN) book/build.py slides

# The notebooks are executed once, for the tests and for the book. Its pages are built, on one core, while the package's
# tests run; the pages' own tests come last.
test: lint executed
	@$(MAKE) --no-print-directory --jobs=2 unit pages
	$(PYTEST) $(OF_THE_BOOK)

# Every Monday, before a release, and once before an issue is called resolved. What an earlier run left is not used.
check:
	@$(MAKE) --no-print-directory test EXECUTE=anew
	OMP_NUM_THREADS=1 $(PYTEST) -m slow tests

install: $(TESTERS)

lint: $(TESTERS)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(VENV)/bin/lint-imports --no-cache --no-logo
	$(VENV)/bin/codespell
	$(VENV)/bin/nbstripout --verify --keep-id notebooks/*.ipynb
	$(VENV)/bin/zizmor --offline --quiet .github

unit: $(TESTERS)
	OMP_NUM_THREADS=1 $(PYTEST) -m 'not slow' tests $(OF_THE_BOOK:%=--ignore=%) --ignore=tests/slow

# CHAPTERS=notebooks/01_patches.ipynb runs one.
colab: $(INSTALLED)
	$(RUN) book/colab.py $(CHAPTERS)

# What other processors will find; it takes three times as long as executing the chapters. CHAPTERS=05_model runs one.
rounding: $(INSTALLED)
	for n in 1 2 3; do VIT_TUTORIAL_ROUNDING=$$n $(RUN) book/build.py execute $(CHAPTERS) || exit 1; done

# Skeletons: make chapter NAME=14_example, make exercise CHAPTER=03_attention NAME=merge_heads
chapter: $(INSTALLED)
	@$(RUN) book/skeleton.py chapter $(NAME)

exercise: $(INSTALLED)
	@$(RUN) book/skeleton.py exercise $(CHAPTER) $(NAME)

links: $(INSTALLED)
	$(VENV)/bin/jupyter-book config sphinx .
	PYTHONPATH=book/_ext $(VENV)/bin/sphinx-build -b linkcheck -D nb_execution_mode=off -D linkcheck_retries=3 \
		-D linkcheck_report_timeouts_as_broken=0 . _build/links; failed=$$?; rm conf.py; exit $$failed

serve: book
	@echo "http://localhost:$(PORT)  (stop with Ctrl-C)"
	$(RUN) -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

# Everything that was made, but .venv.
clean:
	rm -rf _build .pytest_cache .ruff_cache *.egg-info
	find vit_tutorial tests book benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

define NO_PYTHON
This needs Python 3.11 or later with its venv and ensurepip modules, and `$(PYTHON)` is not one. \
On Debian and Ubuntu: sudo apt install python3-venv. On macOS: brew install python. \
Or name another Python: make book PYTHON=python3.12
endef
export NO_PYTHON

$(INSTALLED): pyproject.toml requirements.txt
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo "$$NO_PYTHON" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV): PyTorch is large, this takes some minutes the first time."
	$(RUN) -m pip install --disable-pip-version-check --no-compile -r requirements.txt
	@$(RUN) -m compileall -qq -j 0 $(VENV)/lib || true  # on all cores; some files are for a later Python
	@touch $@

$(TESTERS): $(INSTALLED)
	$(RUN) -m pip install --disable-pip-version-check --quiet -e '.[test]'
	@touch $@
