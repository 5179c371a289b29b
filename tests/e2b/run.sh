#!/bin/sh
# Starts a server from the given binary on a free port, tests it with the unmodified npm clients,
# and stops it. Fails if a test fails or a sandbox is left.
#
#   tests/e2b/run.sh bin/crannog [arguments of node --test]
set -eu

if [ $# -lt 1 ]; then
	echo "usage: $0 BINARY [arguments of node --test]" >&2
	exit 2
fi
CRANNOG=$(realpath "$1")
shift
cd "$(dirname "$0")"

node -e 'if (+process.versions.node.split(".")[0] < 20) { console.error("node 20 or later is needed, this is " + process.version); process.exit(1) }'

sweep() { [ -z "${E2B_API_KEY:-}" ] || node sweep.mjs; }
. ../server.sh
. ./base-image.sh
packages

unset E2B_API_KEY E2B_API_URL E2B_SANDBOX_URL E2B_DOMAIN E2B_DEBUG E2B_USER_AGENT_SOURCE
start
eval "$(cat "$work/start")"
make_base_image

status=0
if [ $# -gt 0 ]; then
	node --test "$@" || status=$?
elif [ "${CRANNOG_TEST_SDK:-}" = old ]; then
	# The other tests use only the newest SDK, or none.
	node --test --test-concurrency=2 $(grep -lE 'with(Sdk|Sandbox)\(' test/*.test.mjs) || status=$?
elif [ "${CRANNOG_TEST_SAVES:-}" = files ]; then
	# Leave out what an engine cannot do that saves no memory.
	node --test --test-concurrency=2 $(ls test/*.test.mjs | grep -vE '/(autopause|durable|interpreter-state|pause|snapshots)\.') || status=$?
else
	node --test --test-concurrency=2 test/*.test.mjs || status=$?
fi
finish "$status"
