.DEFAULT_GOAL := build
export CGO_ENABLED := 0

GVISOR  := $(shell go list -m -f '{{.Version}}' gvisor.dev/gvisor)
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
# Collecting garbage is a quarter of the compiler's work, so it gets more memory instead.
GOBUILD := GOGC=$(or $(GOGC),400) go build
# The programs begin with internal/engine/gvisor/first, before the Go runtime.
LDFLAGS := -s -w -E _crannog_entry -X gvisor.dev/gvisor/runsc/version.version=$(GVISOR) -X main.version=$(VERSION)

.PHONY: help build console check test test-full tests-begin times check-format test-race test-race-most test-plain test-units test-sandboxes test-soak test-variants test-console test-npm test-e2b-old test-images test-browser-template test-desktop test-containers test-dev test-upgrade packages test-packages test-browser test-clients test-e2b test-mcp test-pages test-long test-unified test-docker test-wasm test-build test-microvm test-jail test-escape test-drill lint vuln gen fuzz bench clean

help: ## list targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

build: console ## bin/crannog, which contains the console, the small guest and the programs for gVisor and WebAssembly
	$(GOBUILD) -ldflags '-s -w' -o internal/host/embedded/guestbin/bin/crannog-guest ./cmd/crannog-guest
	$(GOBUILD) -ldflags '$(LDFLAGS)' -o internal/host/embedded/runtimebin/bin/crannog-runtime ./cmd/crannog-runtime
	$(GOBUILD) -ldflags '-s -w' -o internal/host/embedded/wasmbin/bin/crannog-wasm ./cmd/crannog-wasm
	$(GOBUILD) -ldflags '$(LDFLAGS)' -o bin/crannog ./cmd/crannog

# The console is rebuilt only if its sources changed: a rebuilt page has other file names, so the
# program would change too.
console: internal/frontend/console/dist/index.html ## the pages of the console, if node and npm are there

internal/frontend/console/dist/index.html: $(shell find console \( -name node_modules -o -name gen \) -prune -o -type f -print)
	console/build/build.sh

# The three tiers of docs/internals/testing.md: check for each change, test for all promises,
# test-full for tests that take too long.
check: tests-begin check-format lint test-race-most test-plain test-console ## what needs neither root nor a sandbox: format, linters, unit tests; takes minutes

test: tests-begin build check-format test-units test-console test-sandboxes test-clients ## every promise once; as root on a host with node and what .ci/run installs it skips nothing

test-full: test ## also the tests that take too long for each change: soak, emulated kernel, other variants, fuzzing
	CRANNOG_TEST_FULL=1 $(MAKE) --no-print-directory test-race test-soak test-unified test-variants test-build test-microvm test-jail test-escape test-drill test-e2b-old test-images test-browser-template test-desktop test-containers test-dev test-upgrade test-packages test-pages test-long fuzz

# bin/timing runs the test programs and measures their processor time. CRANNOG_TIMES has the
# measurements since tests-begin.
TIMING := bin/timing
export CRANNOG_TIMES ?= $(CURDIR)/bin/times
# One build serves all packages.
PROGRAM := CRANNOG_TEST_PROGRAM=$(CURDIR)/bin/crannog
# golangci-lint runs go vet's analyses in make check, so the tests do not repeat them. The time limits
# of whole packages, here and below, only end a test that hangs.
GOTEST := $(TIMING) test -vet=off

tests-begin:
	$(GOBUILD) -o $(TIMING) ./tests/timing
	rm -f "$$CRANNOG_TIMES"
	$(TIMING) calibrate

times: ## the slowest tests of the last run, and its processor time
	$(TIMING) report

check-format:
	@files=$$(gofmt -l $$(git ls-files '*.go')) && test -z "$$files" || { echo "gofmt: $$files"; exit 1; }

# The same packages as in make check, without the race detector, which makes them, and compiling
# them, three times as expensive. The egress gateway gives up its privileges differently in a program
# with C code, such as a plain go build makes if a C compiler is there; make check tests the whole
# gateway in such a program.
test-units: $(TIMING) ## all tests of packages that start no sandbox
	packages="$$(tests/packages.sh slow-race) $$(tests/packages.sh race) $$(tests/packages.sh plain)" && $(GOTEST) -p 4 -timeout 40m $$packages
	CGO_ENABLED=1 $(GOTEST) -timeout 30m ./internal/egress/confine

# Many of these tests wait, for time limits and for programs, so four packages run at a time. A
# program with the race detector sleeps for a second at its end unless that is switched off. SQLite
# is C that was translated to Go; the check of its pointer arithmetic, which belongs to the detector,
# takes most of the time of many tests and can find nothing in our code.
RACE := CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 $(GOTEST) -race '-gcflags=modernc.org/...=-d=checkptr=0' -p 4 -timeout 40m

test-race: $(TIMING) ## all tests of packages that start no sandbox, with the race detector
	packages="$$(tests/packages.sh slow-race) $$(tests/packages.sh race)" && $(RACE) -skip '$(CRASHES)|$(LARGE)' $$packages

# In eight packages the detector costs most (in internal/sandbox/lifecycle six times the tests), so
# there it watches only the tests about concurrency. make test-race watches all.
CONCURRENCY := Concurrent|AtOnce|Race|Swapped|While|During

test-race-most: $(TIMING)
	packages=$$(tests/packages.sh race) && $(RACE) -skip '$(CRASHES)|$(LARGE)' $$packages
	packages=$$(tests/packages.sh slow-race) && \
		$(RACE) -skip '$(CRASHES)|$(LARGE)' -run '$(CONCURRENCY)' $$packages && \
		$(GOTEST) -p 4 -skip '$(CRASHES)|$(LARGE)' -timeout 40m $$packages

# These tests start the test program again for each step at which it is killed. With the race
# detector they took more than a third of the time of internal/sandbox/lifecycle.
CRASHES := ^(TestCrashAtEachStepOfStateChange|TestCrashWhileRetaining|TestCrashAtEachStep|TestACrashAtAnyStepLeavesNoHalfImage|TestApplyIsAllOrNothingWhenKilled)$$

# These tests pass many megabytes or many thousands of rows through code that other tests of their
# packages run with the race detector, which makes each byte ten times as expensive.
LARGE := ^(TestLargeResultsUseLittleMemory|TestShownTextIsAudited|TestLongAbsenceReportsGap|TestSlowPageDoesNotDelayOthers|TestReadTreeEnforcesLimits|TestLargeOutputIsNotBuffered|TestFlowsAreReturnedInPages|TestLongLinesAreNotBuffered|TestOutputNeedsLittleMemory|TestVerifyDetectsEveryFlippedByte|TestVerifyFileDetectsEveryFlippedByte|TestTenThousandSandboxesInPages|TestS12ReaderEnforcesLimits|TestLongAnswersAreWrittenInPieces|TestListIsLimitedInBytes|TestAutomatonMatchesNaiveSearch|TestWidenReportsEveryLooserDecision|TestThroughPreservesContent|TestArgumentsAreCountedBeforeDecoding|TestCensus)$$

# Packages in which nothing is concurrent, and those that cannot be tested with the race detector,
# which adds C code to the egress gateway too.
test-plain: $(TIMING)
	packages=$$(tests/packages.sh plain) && $(GOTEST) -p 4 -timeout 40m $$packages ./internal/egress/confine
	packages=$$(grep -rlE --include='*_test.go' "^func ($$(echo '$(CRASHES)|$(LARGE)' | tr -d '^()$$'))\(" internal | xargs dirname | sort -u | sed 's,^,./,') && \
		$(GOTEST) -p 4 -run '$(CRASHES)|$(LARGE)' -timeout 40m $$packages
	CGO_ENABLED=1 $(GOTEST) -timeout 30m ./internal/egress/confine ./internal/egress/gateway

# Three packages at a time: a starting sandbox keeps about one processor busy, but most tests also
# wait. With four, each took longer, and time limits of the product passed. The longest ones start
# first (tests/packages.sh).
test-sandboxes: $(TIMING) bin/crannog tests/unified/kernel/complete
	packages=$$(tests/packages.sh sandboxes) && $(PROGRAM) $(GOTEST) -p 3 -timeout 60m $$packages
	$(GOTEST) -run '^Example' -timeout 10m .
	@test -e "$${CRANNOG_HUMANEVAL:-../shared/data/HumanEval.jsonl.gz}" || echo "note: there is no HumanEval.jsonl.gz, so three programs of our own ran instead of HumanEval's 164 (TestHumanEval)"

test-soak: $(TIMING) bin/crannog ## create and remove hundreds of sandboxes, and check what they leave; longer races
	CRANNOG_TEST_FULL=1 $(PROGRAM) $(GOTEST) -count=1 -timeout 3h ./tests/cycles ./internal/filetree/changeset

test-variants: $(TIMING) bin/crannog ## the engine's rules in full: as root, without control groups, as an unprivileged user
	CRANNOG_TEST_FULL=1 $(GOTEST) -count=1 -timeout 3h -run '^TestConformance' ./internal/engine/gvisor
	CRANNOG_TEST_FULL=1 $(PROGRAM) $(GOTEST) -count=1 -timeout 3h -run '^TestRootless$$' ./tests/causeway

test-docker: $(TIMING) bin/crannog ## all rules of the engine docker, with runc, crun and runsc, on a Docker daemon that the tests start
	CRANNOG_TEST_FULL=1 $(GOTEST) -count=1 -timeout 1h ./internal/engine/docker/...
	CRANNOG_TEST_FULL=1 $(PROGRAM) $(GOTEST) -count=1 -timeout 30m -run '^TestLongDockerScripts$$' ./cmd/crannog

test-wasm: $(TIMING) bin/crannog ## a WebAssembly module that makes requests through the egress gateway, with a secret
	CRANNOG_TEST_FULL=1 $(PROGRAM) $(GOTEST) -count=1 -timeout 30m -run '^TestWebAssemblyModulesUseTheGateway$$' ./tests/causeway

test-build: $(TIMING) bin/crannog ## images compared with those of Docker's classic builder; builds killed at each step; a full disk
	CRANNOG_TEST_FULL=1 $(PROGRAM) $(GOTEST) -count=1 -timeout 1h ./tests/build
	CRANNOG_TEST_FULL=1 $(PROGRAM) $(GOTEST) -count=1 -timeout 1h -run '^(TestAddFetches|TestInstallsFromRealRegistries)' ./tests/causeway

test-microvm: $(TIMING) tests/unified/kernel/complete ## all rules of the engine microvm, on QEMU with an emulated processor
	CRANNOG_TEST_FULL=1 $(GOTEST) -count=1 -parallel 2 -timeout 3h ./internal/engine/microvm/...

# A jail saves no memory, and its record of programs lacks some facts. The rest of the skipped
# tests run only on gVisor.
NOT_JAIL := ^(TestAuditLogHasKnownCounts|TestCopiesHaveOwnAttachments|TestSecretIsNotOnHost|TestRootless|TestAttachmentKinds)$$

# The tests that apply to sandboxes without a network interface: the others send packets, or connect
# to addresses of names.
PROXIED := ^(TestN3|TestN4|TestN7|TestN8|TestN1[01346]|TestN15|TestN17|TestN24|TestA[0-9]|TestS[0-9])

test-jail: $(TIMING) bin/crannog ## attacks on the egress gateway, and E2B's client, with jails instead of gVisor
	CRANNOG_DEFAULT_ENGINE=jail $(PROGRAM) $(GOTEST) -count=1 -timeout 1h -skip '$(NOT_JAIL)' ./tests/causeway
	CRANNOG_DEFAULT_ENGINE=jail CRANNOG_NETWORK_ATTACHMENT=proxy $(PROGRAM) $(GOTEST) -count=1 -timeout 1h -run '$(PROXIED)' ./tests/causeway
	CRANNOG_DEFAULT_ENGINE=jail CRANNOG_DEFAULT_LEVEL=light CRANNOG_TEST_SAVES=files $(TIMING) step tests/e2b-jail tests/e2b/run.sh bin/crannog

test-escape: $(TIMING) bin/crannog ## every known way out of a sandbox, on every engine that this host can run
	CRANNOG_TEST_FULL=1 $(PROGRAM) $(GOTEST) -count=1 -timeout 1h ./tests/escape

test-drill: $(TIMING) bin/crannog ## every scenario of crannog drill, on gVisor and in jails
	CRANNOG_TEST_FULL=1 $(PROGRAM) $(GOTEST) -count=1 -timeout 1h ./tests/drill

# An emulated machine whose controllers are in control groups of version 2.
test-unified: $(TIMING) bin/crannog tests/unified/kernel/complete ## the tests of control groups, on a stock kernel with version 2 in an emulated machine
	$(PROGRAM) $(GOTEST) -count=1 -timeout 3h ./tests/unified -all

tests/unified/kernel/complete:
	tests/unified/kernel.sh

bin/crannog:
	$(MAKE) build

bin/timing:
	go build -o $(TIMING) ./tests/timing

test-console: $(TIMING) ## types and logic of the console's pages
	console/build/packages.sh
	$(TIMING) step console/check npm run -s --prefix console check
	$(TIMING) step console/test npm run -s --prefix console test

test-npm: test-e2b test-mcp ## the unmodified npm clients against a real server

test-e2b: $(TIMING) bin/crannog
	$(TIMING) step tests/e2b tests/e2b/run.sh bin/crannog

test-mcp: $(TIMING) bin/crannog
	$(TIMING) step tests/mcp tests/mcp/run.sh bin/crannog

# Each of these starts a server of its own and waits for it much of the time. The output of each is
# printed when it ends.
test-clients: $(TIMING) bin/crannog ## the npm clients and the console in a browser, two at a time
	speed=$${CRANNOG_TEST_SPEED:-$$(go run ./tests/speed)} && \
		CRANNOG_TEST_SPEED=$$speed $(MAKE) --no-print-directory AT_ONCE=1 -k -j2 -Otarget test-browser test-e2b test-mcp

test-e2b-old: $(TIMING) bin/crannog ## the older SDK of E2B
	CRANNOG_TEST_SDK=old $(TIMING) step tests/e2b-old tests/e2b/run.sh bin/crannog

test-images: $(TIMING) bin/crannog ## a real Debian as an image, as root and unprivileged, from the mirror through the gateway
	$(PROGRAM) $(GOTEST) -count=1 -timeout 90m -skip '^Test(Browser|Desktop)Template$$' ./tests/images

test-browser-template: $(TIMING) bin/crannog ## the recipe browser, driven by Playwright and Puppeteer from npm
	$(PROGRAM) $(GOTEST) -count=1 -timeout 60m -v -run '^TestBrowserTemplate$$' ./tests/images

test-desktop: $(TIMING) bin/crannog ## the recipe desktop, driven by @e2b/desktop from npm
	$(PROGRAM) $(GOTEST) -count=1 -timeout 60m -v -run '^TestDesktopTemplate$$' ./tests/images

test-containers: $(TIMING) ## Docker, Compose and Podman in sandboxes of the recipe images/docker, which the test builds
	CRANNOG_TEST_CONTAINERS=$${CRANNOG_TEST_CONTAINERS:-build} $(GOTEST) -count=1 -timeout 90m -run '^TestContainersInside$$' ./tests/causeway

test-dev: $(TIMING) bin/crannog ## SSH endpoints of sandboxes with OpenSSH, scp, sftp and rsync
	$(PROGRAM) $(GOTEST) -count=1 -timeout 30m ./tests/dev

test-upgrade: $(TIMING) bin/crannog ## open a state directory that an earlier commit made; the first run builds that commit
	$(PROGRAM) $(GOTEST) -count=1 -timeout 60m ./tests/upgrade

# All files of the packages have the time of the commit.
packages: bin/crannog ## bin/packages: deb, rpm, tarball and OCI image of bin/crannog, the same bytes each time
	cd deploy/packages && go build -o ../../bin/packager .
	bin/packager -version "$(patsubst v%,%,$(or $(PACKAGE_VERSION),0.0.0+$(VERSION)))" -time "$$(git log -1 --format=%ct)" $(if $(PACKAGE_BASE),-base $(PACKAGE_BASE))

test-packages: $(TIMING) bin/crannog ## make the packages twice, install them into empty directories, and run what they contain; promtool
	$(PROGRAM) $(GOTEST) -count=1 -timeout 30m ./tests/distribution
	CRANNOG_TEST_FULL=1 $(PROGRAM) $(GOTEST) -count=1 -timeout 30m ./tests/telemetry

test-pages: $(TIMING) bin/crannog ## the console's pages loaded in both themes, a fleet for longer, and the pictures of the README
	CRANNOG_TEST_FULL=1 $(TIMING) step tests/browser-pages tests/browser/run.sh bin/crannog pages fleet pictures

test-long: $(TIMING) bin/crannog ## more of the attacks, kills and commands of make test; a plain build with C code; pip and cargo
	CRANNOG_TEST_FULL=1 $(GOTEST) -count=1 -run 'ThroughCache$$' ./internal/packages/pullthrough
	CRANNOG_TEST_FULL=1 $(PROGRAM) $(GOTEST) -count=1 -timeout 2h ./tests/abuse ./tests/crash
	CRANNOG_TEST_FULL=1 $(PROGRAM) $(GOTEST) -count=1 -timeout 1h -run '^(TestPlainBuildOfAFreshClone|TestLongScripts)$$' ./cmd/crannog
	CRANNOG_TEST_FULL=1 $(TIMING) step tests/e2b-long tests/e2b/run.sh bin/crannog test/pause.test.mjs test/cli.test.mjs test/template.test.mjs
	CRANNOG_TEST_FULL=1 $(TIMING) step tests/mcp-long tests/mcp/run.sh bin/crannog test/conformance.test.mjs

test-browser: $(TIMING) bin/crannog ## the console in a browser, against a real server
	$(TIMING) step tests/browser tests/browser/run.sh bin/crannog

lint: ## golangci-lint with the rules of .golangci.yml
	go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.12.0 run

# The database of known vulnerabilities is at vuln.go.dev.
vuln: ## known vulnerabilities in what the programs call, where the database can be reached
	go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...

gen: ## update the generated files that are checked in
	go generate ./...
	go test ./internal/testkit/archtest ./internal/engine/linux/ocispec -update

fuzz: ## half a minute for each fuzz target
	bench/fuzz.sh 30s

bench: build ## every figure of docs/internals/performance.md
	bench/run.sh

clean: ## remove what the build made
	rm -rf bin internal/frontend/console/dist/assets internal/frontend/console/dist/index.html* internal/host/embedded/guestbin/bin/crannog-guest internal/host/embedded/runtimebin/bin/crannog-runtime

# The prerequisites of a tier run in this order.
ifndef AT_ONCE
.NOTPARALLEL:
endif
