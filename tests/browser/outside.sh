#!/bin/sh
# Runs inside new namespaces: creates an outside network with one host that has a public address,
# and runs the browser tests.
set -eu

ip link set lo up
unshare --net sleep infinity &
outside=$!
until [ "$(readlink "/proc/$outside/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do
	sleep 0.02
done
ip link add inside type veth peer name outside netns "$outside"
ip addr add 93.184.1.254/24 dev inside
ip link set inside up
ip route add default via 93.184.1.1
nsenter --target "$outside" --net sh -c 'ip link set lo up; ip addr add 93.184.1.1/24 dev outside; ip link set outside up'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '127.0.0.1 localhost\n93.184.1.1 api.example.test\n' >"$work/hosts"
mount --bind "$work/hosts" /etc/hosts

CRANNOG_UPSTREAM_LOG="$work/upstream"
export CRANNOG_UPSTREAM_LOG
: >"$CRANNOG_UPSTREAM_LOG"
nsenter --target "$outside" --net node upstream.mjs 93.184.1.1 "$CRANNOG_UPSTREAM_LOG" &
until nsenter --target "$outside" --net node -e 'require("net").connect(80, "93.184.1.1").on("connect", () => process.exit(0)).on("error", () => process.exit(1))'; do
	sleep 0.1
done

status=0
node_modules/.bin/playwright test "$@" || status=$?
exit "$status"
