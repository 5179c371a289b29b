.DEFAULT_GOAL := build
export CGO_ENABLED := 0

GVISOR  := $(shell go list -m -f '{{.Version}}' gvisor.dev/gvisor)
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X gvisor.dev/gvisor/runsc/version.version=$(GVISOR) -X main.version=$(VERSION)

.PHONY: help build test test-go test-cgo test-race test-npm lint gen fuzz bench clean

help: ## list targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

build: ## bin/crannog, with the small guest and the program for gVisor inside
	go build -ldflags '-s -w' -o internal/guestbin/bin/crannog-guest ./cmd/crannog-guest
	go build -ldflags '$(LDFLAGS)' -o internal/runtimebin/bin/crannog-runtime ./cmd/crannog-runtime
	go build -ldflags '$(LDFLAGS)' -o bin/crannog ./cmd/crannog

test: build test-go test-cgo test-race test-npm ## every test; as root on a host with python3 and node it skips nothing

test-go:
	go vet ./...
	go test -timeout 30m ./...

# A plain go build has C code in it where there is a compiler, and there the
# causeway gives up its rights in another way.
test-cgo:
	CGO_ENABLED=1 go test -timeout 10m ./internal/causeway/confine ./internal/causeway/control

# The packages that link gVisor are left out: it is not built for the race
# detector, and its own threads are not ours to judge.
test-race:
	CGO_ENABLED=1 go test -race -timeout 20m $$(go list -f '{{.ImportPath}} {{join .Deps " "}} {{join .XTestImports " "}} {{join .TestImports " "}} ' ./internal/... \
		| grep -v -e 'gvisor\.dev/' -e 'internal/standard' -e 'internal/archtest' -e 'crannog/crannog ' | cut -d' ' -f1)

test-npm: build ## the unmodified npm clients against a real server
	tests/e2b/run.sh bin/crannog

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
	rm -rf bin internal/guestbin/bin/crannog-guest internal/runtimebin/bin/crannog-runtime
