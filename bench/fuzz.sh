#!/bin/sh
# Runs each fuzz target of the repository for the given time: bench/fuzz.sh 30s
# A failing target does not stop the others; it makes the exit code 1.
set -eu
cd "$(dirname "$0")/.."
time=${1:?usage: bench/fuzz.sh DURATION}
export CGO_ENABLED=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go list -f '{{.Dir}}' ./... > "$work/dirs"
: > "$work/list"
while read -r dir; do
	# go test -list needs a compiled test. The search in the files avoids compiling packages without
	# a fuzz target.
	grep -lqs '^func Fuzz' "$dir"/*_test.go || continue
	(cd "$dir" && go test -list '^Fuzz' .) > "$work/one"
	sed -n "s|^Fuzz|$dir Fuzz|p" "$work/one" >> "$work/list"
done < "$work/dirs"

# Succeeds if no input failed. At its time limit, the go tool sometimes reports "context deadline
# exceeded" as a failure although no input failed; then the target is run again.
run() {
	for _ in 1 2 3; do
		(cd "$1" && go test -run '^$' -fuzz "^$2\$" -fuzztime "$time" .) < /dev/null > "$work/out" 2>&1 && return 0
		grep -q 'context deadline exceeded' "$work/out" && ! grep -q 'Failing input' "$work/out" || return 1
	done
	return 1
}

count=0 failed=0
while read -r dir target; do
	count=$((count + 1))
	name=${dir#"$PWD"}
	name="./${name#/} $target"
	if (cd "$dir" && go list -deps -test .) | grep -q '^gvisor.dev/gvisor/pkg/ring0$'; then
		# gVisor's lowest-level code has no room on its stack for a fuzzer's counters, so a test
		# that links it cannot be built with them.
		(cd "$dir" && go test -run "^$target\$" .) > "$work/out" 2>&1 && echo "SEEDS   $name: links gVisor, so only its seeds ran" && continue
		failed=$((failed + 1))
		echo "FAILED  $name"
		cat "$work/out"
	elif run "$dir" "$target"; then
		echo "held    $name: $(grep -o 'execs: [0-9]*' "$work/out" | tail -1)"
	else
		failed=$((failed + 1))
		echo "FAILED  $name"
		cat "$work/out"
	fi
done < "$work/list"
echo "$count fuzz targets for $time each, $failed failed"
[ "$count" -gt 0 ] && [ "$failed" -eq 0 ]
