# make demo   see a language model answer, compiled here          make test   the whole test suite
# make lint   ruff      make types  pyright      make format  mend the layout      make clean  remove what was built
python := .venv/bin/python

.PHONY: demo test lint types format clean
.DEFAULT_GOAL := demo

demo:
	@bash .ci/setup.sh demo
	@$(python) -m meganeura demo

# TESTS="tests/egraph -k fusion" runs a part.
test:
	@bash .ci/setup.sh test
	@$(python) -m pytest $(TESTS)

lint:
	@bash .ci/setup.sh dev
	@$(python) -m ruff check . && $(python) -m ruff format --check --quiet .

types:
	@bash .ci/setup.sh dev
	@$(python) -m pyright --pythonpath $(python)

format:
	@bash .ci/setup.sh dev
	@$(python) -m ruff check --fix-only --quiet . && $(python) -m ruff format .

clean:
	rm -rf .venv .venv-* dist build .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
