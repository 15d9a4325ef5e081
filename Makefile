# Two commands set everything up on a fresh machine that has a Rust toolchain, Python 3 and a C compiler:
#   make demo   builds, then kills a training that comes back and ends bit for bit where an undisturbed one ends
#   make test   everything CI runs
.PHONY: demo test test-long stress test-cuda lint build python wheel tools bench fixtures clean-demo help

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

build: ## compile everything that the tests need
	cargo build --workspace --all-targets --locked

python: ## the Python package where it lies: .venv/bin/python -c "import everstep"
	scripts/python-package.sh

wheel: ## the Python package as a wheel, optimised, in target/wheels
	scripts/wheel.sh

tools: ## install the servers and checkers that the tests use (pinned)
	scripts/install-test-tools.sh

demo: ## a training is killed, comes back, and ends bit for bit where an undisturbed one ends
	scripts/demo.sh

lint: tools ## formatting, clippy, licences and sources of the dependencies
	scripts/lint.sh

test: ## everything CI runs; prints how long each part took
	scripts/test.sh

test-long: ## longer simulations, larger models, more seeds
	scripts/test.sh --long

stress: ## writers, collectors and followers killed at random for some minutes, on a disk and on Ceph's S3 gateway
	cargo build --workspace --locked --bins
	cargo test --workspace --locked --test crash -- --ignored --nocapture --test-threads 1 storm::

test-cuda: ## what only a GPU can show; under 8 minutes on a machine that has one
	scripts/test-cuda.sh

bench: ## figures with references measured in the same run
	scripts/bench.sh

fixtures: ## add what is new to fixtures/v1, which is frozen otherwise; write the other fixtures, vectors and seeds anew
	EVERSTEP_WRITE_FIXTURES=1 cargo test --workspace --locked --test fixtures -- every_repository_of_version_1 kept_fixtures
	EVERSTEP_WRITE_VECTORS=1 cargo test --workspace --locked --test vectors
