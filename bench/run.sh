#!/bin/sh
# Builds the measured programs and those to compare with, and runs the benchmark. Options go to the
# benchmark: bench/run.sh -only create,exec -n 30 -json
set -eu
cd "$(dirname "$0")/.."
export CGO_ENABLED=0
out=bin/bench
mkdir -p "$out"
[ -x bin/crannog ] && [ -f internal/host/embedded/guestbin/bin/crannog-guest ] && [ -f internal/host/embedded/runtimebin/bin/crannog-runtime ] || {
	echo "bench: build first: make build" >&2
	exit 2
}
go build -ldflags '-s -w' -o "$out/bench" ./bench
# Stock gVisor of the same version as the linked one.
go build -ldflags '-s -w' -o "$out/runsc" gvisor.dev/gvisor/runsc
# The binary of a plain go build, without the embedded guest and runtime programs.
printf '{"Replace":{"%s":"","%s":""}}' "$PWD/internal/host/embedded/guestbin/bin/crannog-guest" "$PWD/internal/host/embedded/runtimebin/bin/crannog-runtime" > "$out/overlay.json"
go build -overlay "$out/overlay.json" -ldflags '-s -w' -o "$out/crannog-own-guest" ./cmd/crannog
# The npm client of the group tti. Without it the group lacks its rows.
if command -v npm > "$out/npm.log" && [ ! -d tests/e2b/node_modules/e2b ]; then
	(cd tests/e2b && npm ci --no-audit --no-fund --ignore-scripts) > "$out/npm.log" 2>&1 || cat "$out/npm.log" >&2
fi
exec "$out/bench" -crannog "$PWD/bin/crannog" -own-guest "$PWD/$out/crannog-own-guest" -runsc "$PWD/$out/runsc" "$@"
