# Everything a person or CI runs. `make test` works on a fresh machine with Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.demo-installed
# Tests and benchmarks start hundreds of processes, which must not compile the sources each time.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: install demo screenshots test test-long lint package bench attack chaos clean

install: $(STAMP)

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

# The demo needs a tenth of that. Modules are compiled when they are first used, which are few.
$(DEMO_STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the server and its page into $(VENV) ..."
	test $(STAMP) -nt pyproject.toml || $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --no-compile --editable '.[server,page]'
	touch $@

# A minute: two recorded homes, an overload under two policies side by side, and a fire that is found.
demo: $(DEMO_STAMP)
	$(BIN)/mavstream demo $(DEMO_ARGS)

# Pictures of the page during the demo, into docs/images/page.
screenshots: install
	$(BIN)/python docs/images/screenshots.py

test: install
	$(BIN)/python -m pytest -n auto -m "not long" $(PYTEST_ARGS)

# The full-size differential and memory runs: at least 2,000 generated plans, ten million strings.
test-long: install
	MAVSTREAM_TEST_SCALE=full $(BIN)/python -m pytest -n auto $(PYTEST_ARGS)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Wheel and sdist in build/package/dist, the wheel installed into a clean environment.
package:
	$(PYTHON) .ci/package.py

bench: install
	$(BIN)/python -m bench engine
	$(BIN)/python -m bench decisions
	$(BIN)/python -m bench classes
	$(BIN)/python -m bench isolation
	$(BIN)/python -m bench deadlines
	$(BIN)/python -m bench service
	$(BIN)/python -m bench feeder
	$(BIN)/python -m bench agreement
	$(BIN)/python -m bench spark

# Hostile load against a server on loopback, about four minutes; the long run:
# make attack ATTACK_ARGS="--requests 1000000 --frames 1000000 --json attack.json"
attack: install
	$(BIN)/python -m attack $(ATTACK_ARGS)

# Kills of a real server at random moments, and a comparison of every answer with DuckDB:
# make chaos ROUNDS=1000 SEED=1 CHAOS_ARGS="--only engine both --json chaos.json"
ROUNDS ?= 20
SEED ?= 1
chaos: install
	$(BIN)/python -m chaos --rounds $(ROUNDS) --seed $(SEED) $(CHAOS_ARGS)

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
