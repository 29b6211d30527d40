# The two commands are `make demo` and `make test`. Both find their servers as internal/servers describes.

# Pinned tools, built from the module proxy.
GOFUMPT     = go run mvdan.cc/gofumpt@v0.12.0
STATICCHECK = go run honnef.co/go/tools/cmd/staticcheck@v0.8.2

# Folders with their own go.mod. go.work explains how they find each other.
MODULES = . cmd/txlock otel gocron internal/containers internal/torture internal/unsafeengine bench

# What .ci/width.go checks besides Go code.
PAGES = README.md

# Folders whose exported names need a doc comment.
DOCUMENTED = . cmd/txlock $(wildcard cmd/txlock/internal/*) dialects dialects/postgres dialects/mysql otel gocron \
	internal/containers internal/eventually internal/leaks internal/peer internal/servers internal/shop internal/tier internal/wire \
	internal/guarantees/testbed bench/contest bench/contestants bench/crew bench/database bench/measure bench/report bench/results bench/testbed

.PHONY: demo test test-short test-full check tidy bench bench-full

demo: ## replay real orders, without a lock and with one
	go run ./examples/orders

# Tests wait far more than they compute, so many run at once. But nothing may run beside a measurement of bench. -short and
# TXLOCK_FULL choose the tier: see internal/tier.
GO_TEST = go test -race -count=1 -parallel=32 -timeout=40m

test: ## everything that protects the promise, on every engine: at most 10 minutes
	@echo "left out, and run by make test-full: clients of PostgreSQL on its other version, and long figures"
	@$(call each_module,$(GO_TEST))

test-short: ## what one runs while writing: at most 2 minutes
	@echo "left out, and run by make test: all but one client of each engine, faults, what one engine alone has, the other modules"
	@$(GO_TEST) -short $$(go list ./... | grep -v /guarantees/)

test-full: ## the whole matrix and the long figures
	@$(call each_module,TXLOCK_FULL=yes $(GO_TEST))

# each_module runs a command in each module, and stops at the first failure.
each_module = for module in $(MODULES); do \
		echo "== go test in $$module"; \
		if [ $$module = bench ]; then alone="-p 1"; else alone=; fi; \
		(cd $$module && $(1) $$alone ./...) || exit 1; \
	done

check: ## format, width, vet, lint, documentation, dependencies
	@files=$$($(GOFUMPT) -l .) && if [ -n "$$files" ]; then echo "not formatted by gofumpt:"; echo "$$files"; exit 1; fi
	go run .ci/width.go . $(PAGES)
	@for module in $(MODULES); do (cd $$module && go vet ./... && $(STATICCHECK) ./...) || exit 1; done
	GOOS=darwin go vet ./...
	GOOS=windows go vet . ./dialects/...
	cd cmd/txlock && GOOS=darwin go vet ./... && GOOS=windows go vet ./...
	go run .ci/documented.go $(DOCUMENTED)
	.ci/dependencies

bench: ## every lock people use today, side by side: less than 5 minutes
	cd bench && go run .

bench-full: ## the same, for publishing: about 17 minutes
	cd bench && go run . -full

# The other modules require a release of the root module. go.work replaces it with the root folder, but go mod tidy
# ignores go.work.
tidy: ## go.mod and go.sum of every module, when imports have changed
	@for module in $(MODULES); do \
		echo "== go mod tidy in $$module"; \
		(cd $$module && export GOWORK=off && go mod edit -replace=github.com/txlock/txlock=$(CURDIR) && \
			{ go mod tidy; done=$$?; go mod edit -dropreplace=github.com/txlock/txlock; exit $$done; }) || exit 1; \
	done
