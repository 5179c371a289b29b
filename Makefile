.DEFAULT_GOAL := build
export CGO_ENABLED := 0

GVISOR  := $(shell go list -m -f '{{.Version}}' gvisor.dev/gvisor)
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X gvisor.dev/gvisor/runsc/version.version=$(GVISOR) -X main.version=$(VERSION)

.PHONY: help build console test test-go test-cgo test-race test-console test-npm test-browser test-unified lint gen fuzz bench clean

help: ## list targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

build: console ## bin/crannog, with the console, the small guest and the program for gVisor inside
	go build -ldflags '-s -w' -o internal/guestbin/bin/crannog-guest ./cmd/crannog-guest
	go build -ldflags '$(LDFLAGS)' -o internal/runtimebin/bin/crannog-runtime ./cmd/crannog-runtime
	go build -ldflags '$(LDFLAGS)' -o bin/crannog ./cmd/crannog

# Only if something changed: a page of the console that is built again has other
# names for its files, and so the program is another.
console: internal/console/dist/index.html ## the pages of the console, if node and npm are there

internal/console/dist/index.html: $(shell find console \( -name node_modules -o -name gen \) -prune -o -type f -print)
	console/build/build.sh

test: build test-go test-cgo test-race test-console test-npm test-browser ## every test; as root on a host with node and what .ci/run installs it skips nothing

# One package at a time: many start boxes, which are processes of their own and
# keep two processors busy, and each waits for what it expects only so long. The
# limits for whole packages, here and below, are for what hangs.
test-go: tests/unified/kernel/vmlinuz
	go vet ./...
	go test -p 1 -timeout 60m ./...
	@test -e "$${CRANNOG_HUMANEVAL:-../shared/data/HumanEval.jsonl.gz}" || echo "note: there is no HumanEval.jsonl.gz, so three programs of our own ran in place of HumanEval's 164 (TestHumanEval)"

# A machine that has its controllers in version 2 of control groups.
test-unified: tests/unified/kernel/vmlinuz ## what has to do with control groups, on a stock kernel with version 2 in an emulated machine
	go test -count=1 -timeout 3h ./tests/unified -all

tests/unified/kernel/vmlinuz:
	tests/unified/kernel.sh

# A plain go build has C code in it where there is a compiler, and there the
# causeway gives up its rights in another way.
test-cgo:
	CGO_ENABLED=1 go test -timeout 30m ./internal/causeway/confine ./internal/causeway/control

# The packages that link gVisor are left out: it is not built for the race
# detector, and its own threads are not ours to judge.
test-race:
	CGO_ENABLED=1 go test -race -timeout 40m $$(go list -f '{{.ImportPath}} {{join .Deps " "}} {{join .XTestImports " "}} {{join .TestImports " "}} ' ./internal/... \
		| grep -v -e 'gvisor\.dev/' -e 'internal/standard' -e 'internal/archtest' -e 'crannog/crannog ' | cut -d' ' -f1)

test-console: ## types and logic of the console's pages
	console/build/packages.sh
	cd console && npm run -s check && npm run -s test

test-npm: build ## the unmodified npm clients against a real server
	tests/e2b/run.sh bin/crannog
	tests/mcp/run.sh bin/crannog

test-browser: build ## the console in a browser, against a real server
	tests/browser/run.sh bin/crannog

lint: ## golangci-lint with the rules of .golangci.yml
	go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.12.0 run

gen: ## make the checked-in generated files again
	go generate ./...
	go test ./internal/archtest ./internal/engine/ocispec -update

fuzz: ## half a minute for each fuzz target
	bench/fuzz.sh 30s

bench: build ## every figure of docs/performance.md
	bench/run.sh

clean: ## remove what build made
	rm -rf bin internal/console/dist/assets internal/console/dist/index.html* internal/guestbin/bin/crannog-guest internal/runtimebin/bin/crannog-runtime
