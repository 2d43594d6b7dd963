# `make help` lists the targets. Building and the demonstration need Go alone;
# `make test` installs what else the tests need.

GO            ?= go
BIN           ?= bin/orderprojector
GOLANGCI      ?= golangci-lint
GOLANGCI_VERSION = v2.12.2
# Packages tested at once: their services share the machine's cores.
TEST_PARALLEL ?= 2
TEST_TIMEOUT  ?= 40m
TEST_FLAGS    ?=
PKG           ?= ./...
BENCH         ?= .
BENCH_PKG     ?= ./test/...
BENCH_FLAGS   ?=
FUZZTIME      ?= 30s
CHECKS        ?= 20000
LONG_TESTS    ?= Interleaving|Piece|NoRecordAndNoBatch

.DEFAULT_GOAL := help
.PHONY: help build demo test test-long test-short race check lint fmt generate bench fuzz kafka postgres install-tools clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build the program into bin/
	$(GO) build -trimpath -o $(BIN) ./cmd/orderprojector

demo: ## Project ten thousand orders of faulty traffic and verify them; SERVE=1 stays up
	$(GO) run ./cmd/orderprojector demo $(if $(SERVE),--serve)

test: ## Run every test with the race detector, against real services that it installs or fetches
	bash .ci/install
	$(MAKE) --no-print-directory check
	$(GO) test -race -p $(TEST_PARALLEL) -timeout $(TEST_TIMEOUT) $(TEST_FLAGS) $(PKG)

test-long: ## Run the simulations and properties over many random cases (CHECKS=20000), and the integration tests with random seeds
	$(GO) test -timeout 2h ./projection ./projection/pgstore -run '$(LONG_TESTS)' -rapid.checks=$(CHECKS) -rapid.seed=0
	ORDERPROJECTOR_TEST_SEED=random $(GO) test -timeout 2h ./test/integration

test-short: ## Run the tests that need no services
	$(GO) test -short $(TEST_FLAGS) $(PKG)

race: ## Run the tests that need no services, with the race detector
	$(GO) test -short -race $(TEST_FLAGS) $(PKG)

check: ## Check formatting, and run go vet
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "not formatted (run make fmt):"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...

lint: ## Run golangci-lint (install it with make install-tools)
	@PATH="$$PATH:$$($(GO) env GOPATH)/bin"; command -v $(GOLANGCI) >/dev/null || \
		{ echo "golangci-lint is missing: run make install-tools" >&2; exit 1; }; \
	$(GOLANGCI) run $(PKG)

fmt: ## Format the code
	gofmt -w .

generate: ## Regenerate what is generated, such as the diagram of the state machine
	$(GO) generate ./...

bench: ## Run the benchmarks against a real broker and database (BENCH=regexp, BENCH_FLAGS=-v)
	bash .ci/install
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchtime 1x -p 1 -timeout 60m $(BENCH_FLAGS) $(BENCH_PKG)

fuzz: ## Fuzz each fuzz target for FUZZTIME (30s)
	@set -e; for pkg in $$($(GO) list $(PKG)); do \
		for target in $$($(GO) test -run '^$$' -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; \
	done

kafka: ## Keep a broker running and print KAFKA_BOOTSTRAP_SERVERS; Ctrl-C ends it
	@bash .ci/install >&2
	@$(GO) build -o bin/services ./test/testenv/cmd/services && exec bin/services kafka

postgres: ## Keep a PostgreSQL server running and print DATABASE_URL; Ctrl-C ends it
	@$(GO) build -o bin/services ./test/testenv/cmd/services && exec bin/services postgres

install-tools: ## Install the linter
	$(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

clean: ## Remove what was built
	rm -rf bin
	$(GO) clean -testcache
