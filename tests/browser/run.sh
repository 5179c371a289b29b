#!/bin/sh
# Tests the console of the given binary with Debian's Chromium, a real server and real sandboxes. A
# network namespace of the test is the internet. Needs root, iproute2, util-linux and chromium.
#
#   tests/browser/run.sh bin/crannog [arguments of playwright test]
set -eu

if [ $# -lt 1 ]; then
	echo "usage: $0 BINARY [arguments of playwright test]" >&2
	exit 2
fi
CRANNOG_BINARY=$(realpath "$1")
export CRANNOG_BINARY
shift
cd "$(dirname "$0")"

for tool in go ip nsenter unshare node "${CRANNOG_CHROMIUM:-chromium}"; do
	command -v "$tool" >/dev/null || { echo "$tool is missing: apt-get install iproute2 util-linux nodejs chromium" >&2; exit 1; }
done
. ../npm.sh
packages
# Build a server with a thousand sandboxes that run nothing.
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
CRANNOG_FLEET="$built/fleet"
export CRANNOG_FLEET
(cd ../.. && CGO_ENABLED=0 go build -o "$CRANNOG_FLEET" ./tests/console/fleet)
unset E2B_API_KEY E2B_API_URL E2B_SANDBOX_URL E2B_DOMAIN
# The namespaces end with the processes in them.
unshare --net --mount --pid --fork --kill-child --mount-proc --propagation private sh ./outside.sh "$@"
