#!/bin/sh
# Rewrites the lists in testdata from an earlier commit, which is built from this repository's
# history.
#
#   tests/compat/update.sh [COMMIT]
set -eu
commit=${1:-bcd05c0}
cd "$(dirname "$0")/../.."
dir=$(mktemp -d)
trap 'git worktree remove --force "$dir/earlier" && rm -r "$dir"' EXIT
git worktree add --quiet --detach "$dir/earlier" "$commit"
(cd "$dir/earlier" && go build -ldflags '-s -w' -o bin/crannog ./cmd/crannog)
go test -count=1 ./tests/compat -earlier "$dir/earlier"
