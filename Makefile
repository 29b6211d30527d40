# The two commands are `make demo` and `make test`. Both find their servers as internal/test/servers describes.

# Pinned tools, built from the module proxy.
GOFUMPT     = go run mvdan.cc/gofumpt@v0.12.0
STATICCHECK = go run honnef.co/go/tools/cmd/staticcheck@v0.8.2

# Folders with their own go.mod. go.work explains how they find each other.
MODULES = . cmd/txlock otel gocron goose serve serve/internal/browser \
	$(addprefix internal/test/,torture unsafeengine migrations anydriver) deploy/kubernetes examples/orm \
	bench

# What .ci/width.go checks besides Go code.
PAGES = README.md docs/models/README.md docs/models/steps.md

# Folders whose exported names need a doc comment.
DOCUMENTED = . txlocktest cmd/txlock $(wildcard cmd/txlock/internal/*) dialects $(wildcard dialects/internal/*) \
	dialects/postgres dialects/mysql $(wildcard dialects/*/internal/*) otel gocron goose serve serve/internal/exposition \
	$(filter-out internal/test,$(wildcard internal/*)) internal/test/guarantees/testbed \
	$(filter-out $(addprefix internal/test/,torture unsafeengine migrations anydriver),$(wildcard internal/test/*)) \
	$(addprefix bench/,contest contestants crew database measure report results testbed)

.PHONY: demo test test-landing test-full models house check tidy bench bench-full

demo: ## replay real orders, without a lock and with one
	go run ./examples/orders

# What is built in one clone is used in the next.
export GOFLAGS := $(GOFLAGS) -trimpath

# A process with the race detector sleeps for a second at its end unless told otherwise, and the tests have hundreds.
export GORACE := atexit_sleep_ms=20 $(GORACE)

# Tests wait more than they compute, so many run at once. -short and TXLOCK_FULL choose the tier: see internal/test/tier.
# make check vets. Without -w a linker spends a quarter of its time on what debuggers read.
GO_TEST = go test -race -vet=off -ldflags=-w -count=1 -parallel=$(AT_ONCE) -timeout=$(LIMIT)
AT_ONCE = 8
LIMIT = 40m

# What a newcomer's make test runs: the library, the command, the adapters. One package of a module at a time, of the
# root two, so that few sets of servers start together.
FIRST = . cmd/txlock goose gocron otel serve

test: ## every guarantee on PostgreSQL, MySQL and MariaDB, the command, the adapters: about 5 minutes on 2 cores, 10 with empty caches
	@echo "left to make test-landing: PostgreSQL 15, PgBouncer, what internal/test/* shows, the examples, bench, the browser"
	@LANES=3 WITHOUT='/(internal/test|examples)/' .ci/test "$(GO_TEST) -p=1 -short" $(FIRST)

test-landing: AT_ONCE = 4
test-landing: ## what make test leaves out, and a change must pass as well: about 20 minutes
	@echo "left to make test-full: PostgreSQL 14, 16, 17, MariaDB 11.8; each guarantee with the other clients of an engine,"
	@echo "most of internal/test/anydriver, 800 of 1000 races between a cancel and the grant, switchovers in the torture"
	@echo "program, the tables of the last release, a PostgreSQL 15 that becomes an 18, most rollouts of deploy/kubernetes,"
	@echo "whether bench tells a lock from none, and each guarantee alone, with a look at what goroutines it leaves"
	@WITHOUT='/txlock/(dialects|internal/[^t].*|txlocktest)(/|$$)' .ci/test "$(GO_TEST)" . $(filter-out $(FIRST),$(MODULES))

test-full: export TXLOCK_FULL = yes
test-full: LIMIT = 90m
test-full: ## the whole matrix and the long figures
	@.ci/test "$(GO_TEST)" $(MODULES) alone bench/measure

models: ## proves the models of the protocols, and breaks each: about a minute. Needs spin, or Debian
	@docs/models/check

house: ## how much of the product there is to know, and the bounds on it; see internal/house
	@go run ./internal/house

check: ## format, width, vet, lint, documentation, dependencies
	@files=$$($(GOFUMPT) -l .) && if [ -n "$$files" ]; then echo "not formatted by gofumpt:"; echo "$$files"; exit 1; fi
	go run .ci/width.go . $(PAGES)
	@for module in $(MODULES); do (cd $$module && go vet ./... && $(STATICCHECK) ./...) || exit 1; done
	GOOS=darwin go vet ./...
	GOOS=windows go vet . ./dialects/...
	cd cmd/txlock && GOOS=darwin go vet ./... && GOOS=windows go vet ./...
	cd internal/test/torture && GOOS=darwin go vet ./...
	go run .ci/documented.go $(DOCUMENTED)
	go run .ci/shown.go
	go run .ci/pages.go
	.ci/api
	.ci/generated
	.ci/dependencies

bench: ## locks that a team would consider, side by side: less than 6 minutes
	cd bench && go run .

bench-full: ## the same, for publishing: about 20 minutes
	cd bench && go run . -full

# The other modules require a release of the root module. go.work replaces it with the root folder, but go mod tidy
# ignores go.work.
tidy: ## go.mod and go.sum of every module, when imports have changed
	@for module in $(MODULES); do \
		echo "== go mod tidy in $$module"; \
		(cd $$module && export GOWORK=off && go mod edit -replace=github.com/txlock/txlock=$(CURDIR) \
			-replace=github.com/txlock/txlock/serve=$(CURDIR)/serve && \
			{ go mod tidy; done=$$?; go mod edit -dropreplace=github.com/txlock/txlock \
				-dropreplace=github.com/txlock/txlock/serve; exit $$done; }) || exit 1; \
	done
