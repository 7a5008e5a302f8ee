# flownet's one list of commands. `make help` explains them; CI runs the same targets.

PYTHON ?= $(shell for p in python3.14 python3.13 python3.12 python3.11 python3; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
CARGO ?= cargo
VENV := .venv
BIN := $(VENV)/bin
# PyO3 must build against the interpreter that will load the wheel.
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python
# Tests start Python some thousand times. Where this is set, as in many images, each start compiles our modules anew.
export PYTHONDONTWRITEBYTECODE :=
# Tests read files as UTF-8 in every locale. Our modules do not rely on it: they name the encoding of each file.
export PYTHONUTF8 := 1
# What pip installs is compiled where it is imported, which most of it never is.
export PIP_COMPILE := 0
# The extension's sources: a change in any of them rebuilds it.
SOURCES := Cargo.toml Cargo.lock pyproject.toml $(shell find rust -name '*.rs' -o -name Cargo.toml)
# The extension crate apart: its tests need a libpython to link.
RUST_PACKAGES := --workspace --exclude flownet-python
# Cargo builds a crate anew for every set of features, and that of a call is what all of its packages want together.
# So benches are built as part of the extension, and find its crates ready: tests/python/meta/test_builds.py sees to it.
BENCHES := -p flownet-python -p flownet-benches
# Crates of others are compiled once, as the extension has them; ours anew for tests, lint and docs, with every assertion.
CHECKED := --release --config tests/checked.toml
# Prints the folder of the interpreter's libpython; fails where there is none to link.
LIBPYTHON := import os, sys, sysconfig; \
	name, folder, system = (sysconfig.get_config_var(key) for key in ("LDLIBRARY", "LIBDIR", "MULTIARCH")); \
	found = [place for place in (folder, os.path.join(folder, system or "")) if os.path.exists(os.path.join(place, name))]; \
	print(*found[:1]); sys.exit(not found)
DEMO_ARGS ?=
LAB_ARGS ?=
# flownet-sim runs optimized, with every invariant asserted, and can plant the bugs that it has to find.
SIM := --profile simulate -p flownet-sim --features planted-bugs
SEEDS ?= 100000
FROM ?= 0
WORKERS ?= 1000
MESH ?= 80

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: prerequisites
prerequisites:
	@test -n "$(PYTHON)" || { echo "flownet needs Python 3.11 or newer with venv: install python3.11 (Debian: apt-get install python3 python3-venv) or set PYTHON=/path/to/python3"; exit 1; }
	@command -v $(CARGO) >/dev/null || { echo "flownet needs a Rust toolchain (cargo 1.90 or newer): see https://rustup.rs"; exit 1; }
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) has no venv module: install it (Debian: apt-get install python3-venv)"; exit 1; }

$(BIN)/python: | prerequisites
	"$(PYTHON)" -m venv $(VENV)

# What building needs; maturin then installs what the wheel depends on.
$(BIN)/maturin: | $(BIN)/python
	$(BIN)/python -m pip install --quiet --upgrade pip "maturin>=1.9,<2"

# What testing and linting need on top. The group is not called "dev": maturin would install that one into every build.
$(VENV)/.tools: pyproject.toml | $(BIN)/maturin
	$(BIN)/python -m pip install --quiet --group tools
	$(BIN)/python -m pip install --quiet --upgrade --no-deps --target $(VENV)/pandas-3 'pandas>=3,<4' # beside the one of the group, for test_pandas_3.py
	@touch $@

$(VENV)/.built: $(SOURCES) | $(BIN)/maturin
	$(BIN)/maturin develop --release --quiet
	@touch $@

.PHONY: tools
tools: $(VENV)/.tools ## install what testing and linting need into .venv

.PHONY: build
build: $(VENV)/.built ## build the extension (release) into .venv

.PHONY: demo
demo: build ## run the main job: word count over real text in two worker processes (DEMO_ARGS="--workers 4 ...")
	$(BIN)/flownet demo wordcount $(DEMO_ARGS)

.PHONY: test
test: ## run all tests, Rust and Python: a line or two for each step, and the end of what it printed where it fails
	@$(call side_by_side,ci/test-python ci/test-rust)

.PHONY: test-rust
test-rust: | $(BIN)/python ## unit, property, simulation, driver and doc tests of the crates
	@if folder=$$($(BIN)/python -c '$(LIBPYTHON)'); then \
		LD_LIBRARY_PATH="$$folder" $(CARGO) test --quiet $(CHECKED) --workspace --exclude flownet-sim; \
	else \
		$(CARGO) test --quiet $(CHECKED) $(RUST_PACKAGES) --exclude flownet-sim \
			&& echo "skipped: the unit tests of flownet-python need a libpython to link (Debian: apt-get install libpython3-dev)"; \
	fi

.PHONY: test-mesh
test-mesh: ## MESH=80 workers with TLS, each connected to each: how long that takes and how much memory (400: quarter of an hour)
	FLOWNET_TEST_MESH_WORKERS=$(MESH) $(CARGO) test --quiet $(CHECKED) --workspace --exclude flownet-sim --test cluster \
		wide:: -- --nocapture

.PHONY: test-loom
test-loom: ## model-check what threads share, under all interleavings
	RUSTFLAGS="--cfg loom" $(CARGO) test --quiet --profile loom -p flownet-memory -p flownet-core --lib loom

.PHONY: test-sim
test-sim: ## flow control: thousands of simulated seeds, every interleaving of small cases, planted bugs found
	$(CARGO) test --quiet $(SIM)

.PHONY: simulate
simulate: ## simulate SEEDS=100000 seeds from FROM=0; the first that fails is shortened and shown
	$(CARGO) run --quiet $(SIM) -- seeds $(FROM) $(SEEDS)

.PHONY: simulate-grid
simulate-grid: ## one world of WORKERS=1000 with a channel from each to each: memory a channel, actions a second
	$(CARGO) run --quiet $(SIM) -- grid $(WORKERS) $$((3 * $(WORKERS) * $(WORKERS)))

.PHONY: prove
prove: ## every interleaving of the small cases and of larger ones (minutes)
	$(CARGO) run --quiet $(SIM) -- prove

KILLS ?= 200

.PHONY: chaos
chaos: build $(VENV)/.tools ## kill workers and whole jobs KILLS=200 times each, and hold what they wrote against what they should have (SEED=7)
	KILLS=$(KILLS) $(BIN)/python -m pytest -q -s tests/python/exactly_once -k again_and_again

.PHONY: chaos-spark
chaos-spark: build $(VENV)/.tools ## kill Python workers, executors, nodes and drivers of a job in Spark KILLS=200 times, and compare its output (SEED=7)
	KILLS=$(KILLS) $(BIN)/python -m pytest -q -s tests/python/spark/test_chaos.py

RUNS ?= 100

.PHONY: rescale
rescale: build $(VENV)/.tools ## stop jobs anywhere and go on in another shape, RUNS=100 of them from SEED=200012, and hold what they wrote against what they should have
	RUNS=$(RUNS) $(BIN)/python -m pytest -q -n $(PYTEST_PROCESSES) tests/python/exactly_once/test_rescaling.py -k whatever_was_done

.PHONY: overlap
overlap: build $(VENV)/.tools ## kill and rescale jobs over files that overlap in time, RUNS=100 of each from SEED=1000 (KILLS=4 of each), and compare with one pass over all rows
	RUNS=$(RUNS) $(BIN)/python -m pytest -q -n $(PYTEST_PROCESSES) tests/python/exactly_once/test_overlapping_files.py

.PHONY: test-objects
test-objects: $(VENV)/.tools ## checkpoints in object stores: a build with them, against a server that speaks S3 (moto, which is installed for it)
	$(BIN)/python -m pip install --quiet 'moto[server]>=5.2'
	$(BIN)/python tests/with_s3.py $(CARGO) test --quiet -p flownet-store --features cloud --test objects -- --ignored

# Most tests wait more than they compute. Those that need one Spark share a process: see tests/python/conftest.py.
PYTEST_PROCESSES ?= 3

.PHONY: test-python
test-python: build $(VENV)/.tools ## operators, faults, life cycle, demo, stubs: through the real extension
	$(BIN)/python -m pytest -n $(PYTEST_PROCESSES) $(PYTEST_ARGS)

PARQUET_TESTING ?=
JSON_TEST_SUITE ?=
.PHONY: test-foreign-files
test-foreign-files: build $(VENV)/.tools ## files of other projects, from copies that you have (PARQUET_TESTING=path of apache/parquet-testing JSON_TEST_SUITE=path of nst/JSONTestSuite)
	$(BIN)/python tests/foreign_files.py "$(PARQUET_TESTING)" "$(JSON_TEST_SUITE)"

# Kept with the build output: one tool, of one version, for this project alone.
MUTANTS_VERSION := 25.3.1
MUTANTS := target/mutants/tool-$(MUTANTS_VERSION)/bin/cargo-mutants
FILES ?=

$(MUTANTS):
	$(CARGO) install --quiet --locked --root $(abspath $(dir $@)..) cargo-mutants --version $(MUTANTS_VERSION)

.PHONY: mutants
mutants: $(MUTANTS) ## break memory, core and net's drivers in one place after the other: hours (FILES="rust/flownet-core/src/credit.rs")
	PROPTEST_CASES=32 PROPTEST_MAX_SHRINK_ITERS=0 nice -n 10 $(MUTANTS) mutants --config tests/mutants.toml --profile mutants --output target/mutants $(addprefix --file ,$(FILES))

# With the extension, whose crates it finds ready (see BENCHES): ours alone are compiled again, with coverage. Fast, for a
# search that takes long; what only looks whether every target works is sooner done with what is sooner compiled.
FUZZED := --release -p flownet-python -p flownet-fuzz --bin fuzz
FUZZ_CONFIG := tests/fuzz/fuzzed.toml
FUZZ_SMOKE_CONFIG := tests/checked.toml
FUZZ_BIN := target/release/fuzz
FUZZ_FEATURES = flownet-fuzz/fuzzer$(if $(FUZZ_LIBPYTHON),$(comma)flownet-fuzz/interpreter)
# The object codec needs an interpreter to link, and numpy to be found by it.
FUZZ_LIBPYTHON = $(shell $(BIN)/python -c '$(LIBPYTHON)' 2>/dev/null)
FUZZ_ENV = LD_LIBRARY_PATH="$(FUZZ_LIBPYTHON)" PYTHONPATH="$(wildcard $(CURDIR)/$(VENV)/lib/python*/site-packages)"
FUZZ_SMOKE := wire peer handshake record-reader rows rows-by-key
SECONDS ?= 60
comma := ,

.PHONY: fuzz-build
fuzz-build: | $(BIN)/python
	@RUSTC_WORKSPACE_WRAPPER="$(CURDIR)/tests/fuzz/covered" $(CARGO) build --quiet --config $(FUZZ_CONFIG) $(FUZZED) --features $(FUZZ_FEATURES)

.PHONY: fuzz
fuzz: fuzz-build ## search for bytes that break a decoder (TARGET=wire SECONDS=600), or repeat one that did (INPUT=FILE)
	@mkdir -p target/fuzz/found/$(TARGET) target/fuzz/corpus/$(TARGET)
	@FUZZ_TARGET=$(TARGET) $(FUZZ_ENV) $(FUZZ_BIN) $(if $(INPUT),$(INPUT),-max_total_time=$(SECONDS) -verbosity=0 -print_final_stats=1 \
		-artifact_prefix=target/fuzz/found/$(TARGET)/ target/fuzz/corpus/$(TARGET) tests/fuzz/corpus/$(TARGET)) \
		|| { echo "repeat it: make fuzz TARGET=$(TARGET) INPUT=$(or $(INPUT),target/fuzz/found/$(TARGET)/...) (the file named above)"; exit 1; }

.PHONY: fuzz-smoke
fuzz-smoke: | $(BIN)/python ## fuzz every target for some seconds, so that none rots (SECONDS=2)
	@mkdir -p target/fuzz; for target in $(FUZZ_SMOKE) $(if $(FUZZ_LIBPYTHON),object-codec); do \
		$(MAKE) --no-print-directory fuzz TARGET=$$target FUZZ_CONFIG=$(FUZZ_SMOKE_CONFIG) SECONDS=$(if $(filter file,$(origin SECONDS)),2,$(SECONDS)) 2>target/fuzz/log \
			&& echo "$$target: $$(sed -n 's/^stat::number_of_executed_units: *//p' target/fuzz/log) inputs" \
			|| { cat target/fuzz/log; exit 1; }; \
	done
	@$(if $(FUZZ_LIBPYTHON),true,echo "skipped: fuzzing the object codec needs a libpython to link (Debian: apt-get install libpython3-dev)")

.PHONY: fuzz-seeds
fuzz-seeds: | $(BIN)/python ## write the seeds of the corpus anew, after a change of a format
	$(FUZZ_ENV) $(CARGO) run --quiet $(CHECKED) -p flownet-fuzz --example seeds $(if $(FUZZ_LIBPYTHON),--features interpreter) -- tests/fuzz/corpus

.PHONY: fmt
fmt: $(VENV)/.tools ## format Rust and Python
	$(CARGO) fmt --all
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix-only --quiet .

.PHONY: lint
lint: lint-rust lint-python ## rustfmt, clippy (warnings are errors), ruff, mypy strict

.PHONY: lint-rust
lint-rust: | $(BIN)/python
	$(CARGO) fmt --all --check
	$(CARGO) clippy --quiet $(CHECKED) --workspace --all-targets --features flownet-fuzz/interpreter -- -D warnings
	$(CARGO) clippy --quiet $(CHECKED) -p flownet-sim --all-targets --features planted-bugs -- -D warnings

.PHONY: lint-python
lint-python: $(VENV)/.tools
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Prints what a bench prints, and appends its results to benches/history.jsonl.
HISTORY := $(BIN)/python benches/history.py run

.PHONY: bench
bench: build ## every part, the whole exchange beside raw TCP, the object codec, objects through workers (more: .venv/bin/flownet bench); adds to benches/history.jsonl
	$(HISTORY) exchange $(CARGO) bench $(BENCHES) --bench parts --bench whole --bench many_channels
	$(HISTORY) object_codec $(BIN)/python benches/python/object_codec.py --json
	$(HISTORY) object_path $(BIN)/python benches/python/object_path.py --json
	$(HISTORY) object_ownership $(BIN)/python benches/python/object_ownership.py --json
	$(HISTORY) instances $(BIN)/python benches/python/instances.py --json
	@$(MAKE) --no-print-directory bench-event-time

.PHONY: bench-event-time
bench-event-time: build ## windows, sessions and joins by event time, timers, memory a key (BENCH_ARGS="--job sliding --job event")
	$(CARGO) bench --quiet $(BENCHES) --bench timers
	$(HISTORY) event_time $(BIN)/python benches/python/event_time.py --json $(BENCH_ARGS)

.PHONY: bench-checkpoints
bench-checkpoints: build ## throughput and latency with a checkpoint a second, how long tasks stand still, how soon a job is back (BENCH_ARGS="--job state")
	$(BIN)/python benches/python/checkpoints.py $(BENCH_ARGS)

.PHONY: bench-state
bench-state: build ## state larger than the memory for it: rate and memory beside state in memory (BENCH_ARGS="--keys 5000000 --hot"; with checkpoints, and going on: "--checkpoint 10s")
	$(BIN)/python benches/python/state_on_disk.py $(BENCH_ARGS)

.PHONY: bench-rows
bench-rows: build $(VENV)/.tools ## streams of rows: filters, sums by key and window, text, functions over batches, files, beside polars (BENCH_ARGS="--only windows polars")
	$(BIN)/python benches/python/rows.py $(BENCH_ARGS)

.PHONY: bench-rows-spark
bench-rows-spark: build $(VENV)/.tools ## a DataFrame through rows and back inside Spark, beside objects and mapInArrow (BENCH_ARGS="--rows 5000000")
	$(BIN)/python benches/python/rows_spark.py $(BENCH_ARGS)

.PHONY: bench-rows-flink
bench-rows-flink: build $(VENV)/.tools ## sums by key and window of rows beside Flink's DataStream and Flink SQL, which are installed for it (BENCH_ARGS="--rows 4000000")
	$(BIN)/python benches/python/rows_flink.py $(BENCH_ARGS)

.PHONY: bench-rows-latency
bench-rows-latency: build $(VENV)/.tools ## how long rows take through a keyed exchange while a million a second do (BENCH_ARGS="--rate 500000 --workers 2")
	$(BIN)/python benches/python/rows_latency.py $(BENCH_ARGS)

.PHONY: bench-nexmark
bench-nexmark: build $(VENV)/.tools ## the queries of Nexmark on rows beside those on objects, events a second (BENCH_ARGS="--flink --workers 2 --only q4 q5")
	$(BIN)/python benches/python/nexmark.py $(BENCH_ARGS)

.PHONY: bench-seen
bench-seen: build $(VENV)/.tools ## what it costs a job to be looked at, how long /metrics of 1,000 subtasks takes, first paint and age of the page (BENCH_ARGS="--only answers")
	$(BIN)/python benches/python/seen.py $(BENCH_ARGS)

.PHONY: lab
lab: build $(VENV)/.tools ## flow control at work: all scenarios under all controls into lab.html, about ten minutes (LAB_ARGS="--control credit,tcp")
	$(BIN)/flownet lab all --report lab.html $(LAB_ARGS)

.PHONY: bench-smoke
bench-smoke: bench-smoke-rust bench-smoke-python ## run every bench once with a tiny size, so that none rots

.PHONY: bench-smoke-rust
bench-smoke-rust: build
	$(CARGO) bench --quiet $(BENCHES) --bench '*' -- --test

.PHONY: bench-smoke-python
bench-smoke-python: build $(VENV)/.tools
	$(BIN)/python benches/python/object_codec.py --smoke
	$(BIN)/python benches/python/object_path.py --smoke
	$(BIN)/python benches/python/object_ownership.py --smoke
	$(BIN)/python benches/python/instances.py --smoke
	$(BIN)/python benches/python/event_time.py --smoke
	$(BIN)/python benches/python/checkpoints.py --smoke
	$(BIN)/python benches/python/state_on_disk.py --smoke
	$(BIN)/python benches/python/rows.py --smoke
	$(BIN)/python benches/python/rows_spark.py --smoke
	$(BIN)/python benches/python/rows_latency.py --smoke
	$(BIN)/python benches/python/nexmark.py --smoke
	$(BIN)/python benches/python/seen.py --smoke

.PHONY: bench-peers
bench-peers: build ## the same work on Flink, PyFlink, Bytewax, Pathway, pyzmq, Flight (PEERS="bytewax zmq" ROUNDS=3 WORKLOADS=...)
	$(BIN)/python benches/peers/run.py $(if $(PEERS),--peers $(PEERS)) $(if $(WORKLOADS),--workloads $(WORKLOADS)) \
		$(if $(ROUNDS),--rounds $(ROUNDS)) $(BENCH_PEERS_ARGS)

.PHONY: docs
docs: ## API documentation of the crates, warnings are errors
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --quiet $(CHECKED) --no-deps $(RUST_PACKAGES)

# What the site is built with: nothing else needs it.
$(VENV)/.site: pyproject.toml | $(BIN)/maturin
	$(BIN)/python -m pip install --quiet --group site
	@touch $@

.PHONY: site
site: $(VENV)/.site ## the documentation site into target/site, links checked; read it from there, without a server
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "target/site/index.html"

.PHONY: functions
functions: build ## write the methods and the table of expression functions anew, after a change of their registry
	$(BIN)/python tests/python/rows/function_methods.py

.PHONY: changelog
changelog: | $(BIN)/maturin ## print the section of the next release that the files of changelog.d make
	@$(BIN)/python -m pip install --quiet --group release
	@$(BIN)/towncrier build --draft --version next

.PHONY: wheel
wheel: $(BIN)/maturin ## build the abi3 wheel into dist/, with object stores
	$(BIN)/maturin build --release --features cloud --out dist

# Two rows of steps side by side. In front goes what Python runs, with what it needs: it waits more than it computes, and its
# tests may not like to wait for a processor, so the steps of the other row are nice. Those compile, on both cores where
# the first row leaves them: what is behind the tests of Rust takes the crates of others from the build.
IN_FRONT := tools build test-python lint-python bench-smoke-python site
BESIDE := test-loom test-sim test-rust lint-rust docs fuzz-smoke bench-smoke-rust
CI_STEPS := $(IN_FRONT) $(BESIDE)
ci/build: ci/tools
ci/test-python: ci/build
ci/lint-python: ci/test-python
ci/bench-smoke-python: ci/lint-python
# Runs pip: behind all that uses what pip installed.
ci/site: ci/bench-smoke-python
ci/test-sim: ci/test-loom
ci/test-rust: ci/test-sim ci/build
ci/lint-rust: ci/test-rust
ci/docs: ci/lint-rust
ci/fuzz-smoke: ci/docs
ci/bench-smoke-rust: ci/fuzz-smoke

.PHONY: ci
ci: ## everything CI runs: a line or two for each step, and the end of what it printed where it fails
	@$(call side_by_side,ci/site ci/bench-smoke-rust)

# All of it is in target/ci; a failure is at the end of what a step printed, and who reads a CI's output may see no more than some pages of it: what failed is named last.
define side_by_side
rm -rf target/ci && mkdir -p target/ci; \
$(MAKE) --no-print-directory $(BIN)/maturin && $(MAKE) --no-print-directory --jobs 2 $(1) || { \
	for log in $$(ls target/ci/*.failed 2>/dev/null); do \
		tail -c 7000 "$$log"; echo "make $$(basename "$$log" .failed) failed: $$log"; \
		grep -aE '^(FAILED|ERROR|error|test .* FAILED)' "$$log" | cut -c 1-200 | tail -n 20; \
	done; exit 1; }
endef

.PHONY: $(addprefix ci/,$(CI_STEPS))
$(addprefix ci/,$(CI_STEPS)): ci/%:
	@started=$$(date +%s); log=target/ci/$*.log; echo "$* ..."; \
	$(if $(filter $*,$(IN_FRONT)),,nice) $(MAKE) --no-print-directory --jobs 1 $* >$$log 2>&1 || { mv $$log target/ci/$*.failed; exit 1; }; \
	tail -n 1 $$log; times >target/ci/$*.times; \
	awk -v step=$* -v took=$$(($$(date +%s) - started)) \
		'NR == 2 { gsub(/[ms]/, " "); printf "%s: %d s, %d s of a processor\n", step, took, 60 * ($$1 + $$3) + $$2 + $$4 }' target/ci/$*.times

.PHONY: clean
clean: ## remove .venv, build output and caches
	rm -rf $(VENV) target dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find python -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
