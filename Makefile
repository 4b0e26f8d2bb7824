# The front door: `make` lists what there is to do.
BIN := .venv/bin
CODE := spark/lakehold tests $(wildcard dags/*.py docs/examples/*.py)
# Each of the workers has a Spark session of its own, of 2 GiB, and two have a stack, of 2 GiB. Tests of the stack and of single
# servers wait half of their time: four workers use two cores then.
PYTEST := $(BIN)/pytest --numprocesses 4 --dist loadgroup --no-loadscope-reorder

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup setup-stack setup-mariadb setup-browser demo demo-live demo-cluster airflow stack-up stack-down test test-fast soak fuzz test-connect test-pythons lint types docs format bench release lock clean

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n\033[1m%s\033[0m\n", substr($$0, 5)} \
		/^[a-z-]+:.*## / {printf "  \033[36m%-12s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Start
setup: ## Install what lakehold needs: Java, Maven, .venv and Spark's jars
	@.ci/bootstrap spark

setup-stack: ## ... and what the stack needs: PostgreSQL, Kafka, registry, Connect with Debezium
	@.ci/bootstrap spark stack

setup-mariadb: ## ... and what the tests of its capture need: MariaDB
	@.ci/bootstrap mariadb

setup-browser: ## ... and what the tests of pages and alerts need: headless Chromium and promtool
	@.ci/bootstrap browser promtool

demo: setup ## Ingest recorded changes into a lake and show it
	@$(BIN)/lakehold demo

demo-live: setup-stack ## The same from a live database, through Debezium and Kafka
	@$(BIN)/lakehold demo --live

demo-cluster: setup-stack ## The live shop on a Spark cluster with an S3 store, of which a worker and the Connect server are killed
	@$(BIN)/python -m tests.cluster_demo

airflow: setup-stack ## The live shop under Airflow, with its UI on PORT (8080)
	@$(BIN)/lakehold demo --airflow --port $(or $(PORT),8080)

stack-up: setup-stack ## Start the stack on this machine
	@$(BIN)/lakehold stack up

stack-down: setup ## Stop the stack
	@$(BIN)/lakehold stack down

##@ Check
test: setup-stack setup-mariadb setup-browser lint types build/spark-classes.jsa ## Run every check and every test
	@$(PYTEST) -m "not soak" --timeout 600 --durations 30 --durations-min 10

build/spark-classes.jsa: requirements.lock
	@$(BIN)/python -m tests.spark_archive

test-fast: setup setup-browser ## Run the tests that need no stack
	@$(PYTEST) -m "not stack"

soak: setup-stack setup-mariadb ## Run the tests that take longer than a CI run may, then random commands on whole lakes for MINUTES (60)
	@$(BIN)/pytest -m soak --verbose --capture no
	@REPLAY_EXAMPLES=20 INCREMENTAL_HISTORIES=4 INCREMENTAL_QUERIES=6 TRANSACTION_EXAMPLES=2000 $(BIN)/pytest --verbose \
		tests/spark/test_replay.py tests/spark/test_changes.py tests/spark/test_incremental_queries.py \
		tests/property/test_transactions.py
	@$(BIN)/python -m tests.whole --minutes $(or $(MINUTES),60)

fuzz: setup ## Try random bad input for SECONDS (60) of each kind; SEED repeats a run
	@$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),60) $(if $(SEED),--seed $(SEED))

test-connect: setup ## Run the tests of Spark once more, over Spark Connect
	@$(PYTEST) --spark-connect tests/spark tests/golden tests/property

test-pythons: setup ## Install the wheel into new environments of each Python that the machine has, and run the demo in each
	@$(BIN)/pytest --verbose tests/every_python.py

lint: setup ## Check style, words and layers
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@$(BIN)/python -m tests.words
	@$(BIN)/lint-imports

types: setup ## Check types
	@$(BIN)/mypy $(CODE)

docs: setup ## Build the documentation as a site, in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --config-file .mkdocs.yml

bench: setup-stack ## Measure
	@$(BIN)/python -m tests.benchmarks

##@ Maintain
format: setup ## Format the code and fix what can be fixed
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format

release: setup ## Build wheel and sdist in dist, and check them: content, metadata, version, changelog, a new environment
	@rm -rf dist
	@$(BIN)/uv build --quiet --no-build-isolation
	@$(BIN)/pytest --verbose tests/unit/test_packages.py tests/release.py

lock: setup ## Resolve pyproject.toml into requirements.lock, keeping the versions that still fit
	@$(BIN)/uv pip compile pyproject.toml --extra airflow --extra quality --group dev --python-version 3.11 \
		--generate-hashes --no-annotate --no-header --no-emit-index-url --no-emit-find-links \
		--quiet --output-file requirements.lock

clean: ## Remove caches and build output
	@rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	@find spark dags tests -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
