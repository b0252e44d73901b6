# Everything a newcomer or CI needs, on Python >= 3.11 with venv, git and make. Nothing outside this folder is touched.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
# The suite runs on this many processes, twice as many as a small machine has cores: a third of its time it waits for
# leases and for processes to start. Who watches for stalls counts time of the processor, not time that passes.
JOBS   ?= 4
# What takes long runs on as many as there are cores: chaos and storms count their own time. So do tests that never wait.
LONG_JOBS ?= 2

# A virtual environment has absolute paths in it, so a folder that was moved or copied gets a new one.
MOVED  := $(shell test -e $(STAMP) && test "$$(cat $(STAMP))" != "$(CURDIR)" && echo moved)

.PHONY: moved help setup run test cover check slow campaign crash chaos fuzz lint bench lock clean

help:            ## what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

setup: $(STAMP)  ## .venv with everything, from pinned versions

$(STAMP): requirements.txt pyproject.toml $(MOVED)
	@command -v $(PYTHON) >/dev/null || { echo "jqd needs Python 3.11 or newer, and there is no $(PYTHON) here. Install one, or name it: make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "jqd needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@test -z "$(MOVED)" || { echo "this folder was moved: $(VENV) is made anew"; rm -rf $(VENV); }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@echo "$(CURDIR)" >$@

run: setup       ## one daemon, its own store and an example worker, data in ./.jqd
	@$(BIN)/jqd dev

# Tests start programs by the hundred: their code is compiled once, whatever the environment says.
test cover crash chaos slow campaign: export PYTHONDONTWRITEBYTECODE =

# The tests that must execute every branch of the journal. Measuring costs half as much again, so the rest runs without.
JOURNAL_TESTS := tests/journal tests/crash/test_journal.py tests/crash/test_calls.py tests/crash/test_power.py

# Up to three tests that failed (1; anything else is no test's failure) are tried once more, alone, and named.
AGAIN := || { code=$$?; test $$code = 1 && $(BIN)/python -m tests.again; }

test: setup      ## the whole suite; every branch of the journal must be executed
	@rm -f .coverage .coverage.*
	$(BIN)/python -m coverage run -m pytest -q -n $(LONG_JOBS) --dist worksteal $(JOURNAL_TESTS)
	@$(BIN)/python -m coverage combine -q
	@$(BIN)/python -m coverage report --include='jqd/journal/*' --fail-under=100 || { echo "jqd/journal must have every branch executed: see the report above" >&2; exit 1; }
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal $(JOURNAL_TESTS:%=--ignore=%) $(AGAIN)

cover: setup     ## the whole suite with coverage of everything
	@rm -f .coverage .coverage.*
	$(BIN)/python -m coverage run -m pytest -q -n $(JOBS) --dist worksteal
	@$(BIN)/python -m coverage combine -q
	@$(BIN)/python -m coverage report

lint: setup      ## format, lint, types, architecture
	$(BIN)/ruff format --check jqd tests bench examples docs
	$(BIN)/ruff check jqd tests bench examples docs
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test ## everything a change must pass

slow: setup      ## what each change need not pay: chaos, README, packages, frameworks, backup, the page for the night, and who stays away for long
	$(BIN)/python -m pytest -m long -q -n $(LONG_JOBS) --dist worksteal tests/chaos/test_chaos.py tests/wire/test_conform.py tests/contract/test_store_wide.py tests/store/test_sentinel.py $(patsubst %,tests/webui/test_%.py,acts pages lossy live follow windows) $(patsubst %,tests/live/test_%.py,readme second_machine crash wheel backup_commands night frameworks typescript go storm memory servers space registered ageing own_store said code types dev dev_ui limits pull pull_worker gone early_reports callbacks failover path groups unique mapreduce mail large_results one_port processes plugin) tests/simulation/test_sim.py tests/simulation/test_mistakes.py tests/test_bench.py $(AGAIN)

# From time to time, and before a release: what the suite shows with a few seeds, once more with many. Some ten minutes on two cores.
campaign: setup  ## more seeds, mistakes that few of them find, a minute of chaos, the worst of bytes
	$(BIN)/python -m pytest tests/simulation tests/chaos tests/contract -m long -q -n $(LONG_JOBS)
	$(BIN)/python -m tests.simulation --seeds 1000 --from 60 & more=$$!; \
	$(BIN)/python -m tests.simulation --seeds 1000 --from 2000; here=$$?; wait $$more && exit $$here
	$(BIN)/python -m tests.chaos --seconds 60 --servers 2
	$(BIN)/python -m tests.wire --seconds 60

crash: setup     ## the crash proofs, long form: hours (docs/build/TESTING.md)
	$(BIN)/python -m tests.crash.kill
	$(BIN)/python -m tests.crash.powercut
	$(BIN)/python -m pytest tests/live -m long -q
	$(BIN)/python -m pytest tests/store/test_replies.py --every-reply --timeout 0 -o faulthandler_timeout=0 -q -n $(LONG_JOBS)
	$(BIN)/python -m pytest tests/crash --power-cuts 100000 --journal-bytes 65536 --flip-bytes 65536 --timeout 0 -o faulthandler_timeout=0 -q -n $(LONG_JOBS)

chaos: setup     ## five minutes of all faults at once on three daemons, with jobs and with flows (docs/build/TESTING.md)
	$(BIN)/python -m tests.chaos

SEEDS  ?= 20000
FROM   ?= 0
sim: setup       ## whole clusters in one loop, long form: about an hour (SEEDS=20000 FROM=0)
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --from $(FROM)

fuzz: setup      ## what reads others' bytes, for minutes; 100,000 requests of anything: no 5xx, no more memory (docs/build/TESTING.md)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-fuzz.txt \
	  || echo "atheris does not install here: inputs are found by chance instead of by coverage" >&2
	$(BIN)/python -m tests.fuzz

bench: setup     ## all benchmarks, short form
	$(BIN)/python -m bench

LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header
lock:            ## resolve requirements*.txt anew from pyproject.toml (needs uv)
	$(LOCK) --all-extras --output-file requirements.txt pyproject.toml
	$(LOCK) --group fuzz --constraints requirements.txt --output-file requirements-fuzz.txt
	$(LOCK) --extra all --constraints requirements.txt --output-file requirements-all.txt pyproject.toml

clean:           ## remove what make made (never ./.jqd: that is data)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .coverage .coverage.*
