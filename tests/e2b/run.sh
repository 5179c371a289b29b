#!/bin/sh
# Starts a server from the given binary on a free port, drives it with the
# unmodified npm clients, and stops it. Fails on anything.
#
#   tests/e2b/run.sh bin/crannog [arguments of node --test]
set -eu

if [ $# -lt 1 ]; then
	echo "usage: $0 BINARY [arguments of node --test]" >&2
	exit 2
fi
bin=$(realpath "$1")
shift
here=$(cd "$(dirname "$0")" && pwd)
cd "$here"

node -e 'if (+process.versions.node.split(".")[0] < 20) { console.error("node 20 or later is needed, this is " + process.version); process.exit(1) }'

# The lock file is newer than what is installed, or nothing is.
if [ ! -e node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
	npm ci --no-audit --no-fund --ignore-scripts
	touch node_modules/.package-lock.json
fi

work=$(mktemp -d)
server=
clean() {
	if [ -n "$server" ]; then
		if [ -n "${E2B_API_KEY:-}" ]; then
			node sweep.mjs || true
		fi
		kill "$server" 2>/dev/null || true
		wait "$server" 2>/dev/null || true
	fi
	rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

# A free port: the kernel names one, and the server takes it a moment later.
port=$(node -e 'const s = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close() })')

unset E2B_API_KEY E2B_API_URL E2B_SANDBOX_URL E2B_DOMAIN E2B_DEBUG E2B_USER_AGENT_SOURCE
# A session of its own keeps the terminal's interrupt from ending the server
# before its sandboxes are removed.
setsid "$bin" serve --listen "127.0.0.1:$port" --state "$work/state" >"$work/start" 2>"$work/log" &
server=$!

tries=0
until grep -q '^export E2B_API_KEY=' "$work/start"; do
	tries=$((tries + 1))
	if [ "$tries" -gt 300 ] || ! kill -0 "$server" 2>/dev/null; then
		echo "the server does not start:" >&2
		cat "$work/start" "$work/log" >&2
		exit 1
	fi
	sleep 0.1
done
eval "$(cat "$work/start")"

status=0
if [ $# -gt 0 ]; then
	node --test "$@" || status=$?
else
	node --test --test-concurrency=2 test/*.test.mjs || status=$?
fi

# The server must have lived through all of it, hold no sandbox of ours, and
# end in order when it is told to.
if ! kill -0 "$server" 2>/dev/null; then
	echo "the server died:" >&2
	cat "$work/log" >&2
	exit 1
fi
if ! node sweep.mjs; then
	status=1
fi
kill "$server"
if ! wait "$server"; then
	echo "the server ended with an error:" >&2
	status=1
fi
server=
if [ "$status" -ne 0 ]; then
	echo "--- server log" >&2
	tail -n 100 "$work/log" >&2
fi
exit "$status"
