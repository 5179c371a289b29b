#!/bin/sh
# Runs every fuzz target of the repository for a time each: bench/fuzz.sh 30s
# A crash does not stop the others; it makes the exit code 1.
set -eu
cd "$(dirname "$0")/.."
time=${1:?usage: bench/fuzz.sh DURATION}
list=$(mktemp)
trap 'rm -f "$list"' EXIT
go list -f '{{.Dir}}' ./... | while read -r dir; do
	# The tests themselves are named in the files; go test -list asks the
	# compiled test, which knows build constraints too.
	grep -lqs '^func Fuzz' "$dir"/*_test.go || continue
	(cd "$dir" && go test -list '^Fuzz' .) > "$list.one"
	grep '^Fuzz' "$list.one" | while read -r target; do
		echo "$dir $target" >> "$list"
	done
done
rm -f "$list.one"
count=0 failed=0
while read -r dir target; do
	count=$((count + 1))
	echo "== ${dir#"$PWD"/} $target"
	(cd "$dir" && go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" . < /dev/null) || {
		failed=$((failed + 1))
		echo "== failed: ${dir#"$PWD"/} $target"
	}
done < "$list"
echo "$count fuzz targets, $failed failed"
[ "$count" -gt 0 ] && [ "$failed" -eq 0 ]
