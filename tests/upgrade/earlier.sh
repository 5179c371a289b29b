#!/bin/sh
# Builds the program of an earlier commit from this repository's history, once, and prints its path.
# The tests of this directory create a state directory with it. The build is that commit's "make
# build" without the console's pages. The link flags must set the version of gVisor, because saved
# memory names it.
#
#   tests/upgrade/earlier.sh [COMMIT]
set -eu
commit=${1:-bcd05c0}
cd "$(dirname "$0")/../.."
program=$PWD/bin/earlier/$commit/release/crannog
if [ ! -x "$program" ]; then
	git rev-parse --verify --quiet "$commit^{commit}" >/dev/null || {
		echo "commit $commit is not in this clone: fetch the history (git fetch --unshallow)" >&2
		exit 1
	}
	dir=$(mktemp -d)
	trap 'git worktree remove --force "$dir/source"; rmdir "$dir"' EXIT
	git worktree add --quiet --detach "$dir/source" "$commit"
	mkdir -p "$(dirname "$program")"
	(
		cd "$dir/source"
		flags="-s -w -X gvisor.dev/gvisor/runsc/version.version=$(go list -m -f '{{.Version}}' gvisor.dev/gvisor) -X main.version=$commit"
		go build -ldflags '-s -w' -o internal/guestbin/bin/crannog-guest ./cmd/crannog-guest
		go build -ldflags "$flags" -o internal/runtimebin/bin/crannog-runtime ./cmd/crannog-runtime
		go build -ldflags "$flags" -o "$program.new" ./cmd/crannog
	) >&2
	mv "$program.new" "$program"
fi
echo "$program"
