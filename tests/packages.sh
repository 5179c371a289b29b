#!/bin/sh
# Prints one of four sets of packages with tests. Each package is in exactly one set:
#
#   sandboxes   start real sandboxes, servers or an emulated machine
#   race        the others in which anything is concurrent
#   slow-race   those of them in which the race detector costs most
#   plain       the rest: nothing in them is concurrent, or they count memory, or link
#               gVisor, which is not built for the race detector and whose data races
#               are not our bugs
#
# Four packages are in no set, because they have targets of their own: tests/upgrade builds an
# earlier version (make test-upgrade), tests/images downloads a Debian (make test-images),
# tests/dev uses SSH clients (make test-dev), and tests/distribution makes packages (make
# test-packages).
#
#   tests/packages.sh sandboxes|race|slow-race|plain
set -eu
cd "$(dirname "$0")/.."
module=$(go list -m)

# One line for each package: its path, and the imports of it and its tests.
list=$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{join .Deps " "}} {{join .TestImports " "}} {{join .XTestImports " "}} {{end}}' ./...)
# Packages that start goroutines, use locks or serve HTTP, in their code or their tests. What others
# use concurrently is tested with the race detector in the tests of those others.
concurrent=$(grep -rlE --include='*.go' '^\s*go |\bsync(/|\.|test)|\.Go\(|\bchan\b|\.Parallel\(\)|errgroup|httptest' api internal cmd tests ./*.go | sed 's,/[^/]*$,,' | sort -u | tr '\n' ' ')

printf '%s\n' "$list" | awk -v module="$module" -v concurrent=" $concurrent" -v set="${1:?usage: tests/packages.sh sandboxes|race|slow-race|plain}" '
	# The longest ones come first, or the last one would run alone.
	BEGIN { first["tests/causeway"] = first["internal/sandbox/lifecycle"] = 1; first["cmd/crannog"] = first["internal/frontend/console"] = 2; first["internal/engine/gvisor"] = 3; first["tests/abuse"] = 4; first["internal/mcpserver"] = 5 }
	BEGIN { if (set !~ /^(sandboxes|race|slow-race|plain)$/) { print "tests/packages.sh: no set " set > "/dev/stderr"; exit 2 } }
	NF {
		name = substr($1, length(module) + 2)
		if (name == "tests/upgrade" || name == "tests/images" || name == "tests/dev" || name == "tests/distribution") next
		if (name ~ /^tests\// && name !~ /^tests\/(compat|timing)$/ || name ~ /^(cmd\/crannog|internal\/(engine\/(jail|gvisor|docker|wasm|microvm)|mcpserver|server\/standard))$/)
			is = "sandboxes"
		else if (!index(concurrent, " " (name ? name : ".") " ") || $0 ~ /gvisor\.dev\/|crannog\/internal\/server\/standard |crannog\/crannog / || name ~ /^internal\/(testkit\/archtest|host\/prefault|engine\/wasm\/runner)$/)
			is = "plain"
		else if (name ~ /^internal\/(audit|filetree\/changeset|frontend\/(console\/inside|ingress|v1)|guest\/interpreter|sandbox\/lifecycle|state\/snapshot)$/)
			is = "slow-race"
		else
			is = "race"
		if (is == set) print (name in first ? first[name] : 9), $1
	}' | sort -s -n -k 1,1 | cut -d ' ' -f 2
