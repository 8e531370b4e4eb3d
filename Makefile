# The two commands of this repository:
#   make book    make .venv, run the notebooks, build the book, print the page to open
#   make test    the same .venv, then everything that is checked
# and: make serve, make lint, make clean. PYTHON=python3.12 chooses another Python, 3.11 or later; once .venv
# is made, it has its own: delete it first. Windows has no .venv/bin: use WSL there.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
PORT ?= 8000

.PHONY: book test lint serve clean

book: $(INSTALLED)
	$(RUN) book/build.py execute
	$(RUN) book/build.py html

# What fails fast comes first. The notebooks are executed once, for the tests and for the book.
test: lint
	OMP_NUM_THREADS=1 $(RUN) -m pytest tests --ignore=tests/test_book.py --ignore=tests/test_browser.py -n 2 --dist worksteal -q
	$(RUN) book/build.py execute
	$(RUN) book/build.py html
	$(RUN) -m pytest tests/test_book.py tests/test_browser.py -n 2 --dist loadgroup -q

lint: $(INSTALLED)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(VENV)/bin/codespell
	$(VENV)/bin/nbstripout --verify --keep-id notebooks/*.ipynb

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
	$(RUN) -m pip install --disable-pip-version-check -r requirements.txt
	@touch $@
