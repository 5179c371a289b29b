#!/bin/sh
# Writes the small state directory that tests/crash opens. The program of an earlier commit
# (earlier.sh) creates it and is stopped. It has rows of sandboxes that do not run, the audit log
# and the recordings. Needs root.
#
#   tests/upgrade/state.sh [COMMIT]
set -eu
commit=${1:-bcd05c0}
cd "$(dirname "$0")"
old=$(./earlier.sh "$commit")
dir=$(mktemp -d)
trap 'kill "$server" 2>/dev/null || true; rm -rf "$dir"' EXIT
mkdir "$dir/home" "$dir/work"
export HOME="$dir/home" CRANNOG_STATE="$dir/state"
"$old" serve --listen 127.0.0.1:0 --pool off >"$dir/start" 2>"$dir/log" &
server=$!
until grep -q '^export E2B_API_KEY=' "$dir/start"; do sleep 0.1; done
printf a-secret-value-of-before-0123456789 | "$old" secret set TOKEN
"$old" key new --quiet key-of-before >"$dir/key"
cd "$dir/work"
echo before >kept.txt
"$old" run -- sh -c 'echo printed; echo run > of-run.txt'
"$old" run -d -q --name asleep --allow set.example.com -- sleep 100000
"$old" snapshot --files-only --name flat asleep
"$old" pause --files-only asleep
"$old" run -d -q --name ended --no-workspace -- sleep 100000
"$old" stop ended
"$old" audit checkpoint >"$dir/state/checkpoint-of-before"
"$old" ls --all --json >"$dir/state/list-of-before.json"
cp "$dir/key" "$dir/state/key-of-before"
kill -INT "$server"
wait "$server" || true
cd - >/dev/null
# The template's programs and the sandbox's files are left out because they are large.
tar -C "$dir/state" --owner=0 --group=0 --exclude=./snapshots --exclude=./templates --exclude=./guest --exclude=./host-files \
	--exclude=./run --exclude=./causeway --exclude=./workspaces --exclude=./runtime -cf - . | gzip -9n >"../crash/testdata/state-$commit.tar.gz"
ls -l "../crash/testdata/state-$commit.tar.gz"
