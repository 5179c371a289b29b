#!/bin/sh
# Builds the program of an earlier commit from this repository's history, once, and prints its
# path. The tests of this directory make a state directory with it.
#
#   tests/upgrade/earlier.sh [COMMIT]
set -eu
commit=${1:-bcd05c0}
cd "$(dirname "$0")/../.."
program=$PWD/bin/earlier/$commit/crannog
if [ ! -x "$program" ]; then
	git rev-parse --verify --quiet "$commit^{commit}" >/dev/null || {
		echo "commit $commit is not in this clone: fetch the history (git fetch --unshallow)" >&2
		exit 1
	}
	dir=$(mktemp -d)
	trap 'git worktree remove --force "$dir/source"; rmdir "$dir"' EXIT
	git worktree add --quiet --detach "$dir/source" "$commit"
	mkdir -p "$(dirname "$program")"
	(cd "$dir/source" && go build -ldflags '-s -w' -o "$program.new" ./cmd/crannog) >&2
	mv "$program.new" "$program"
fi
echo "$program"
