#!/bin/sh
# Installs what the console is built from, exactly as the lock file has it, and
# only if that changed since. Scripts of packages are not run.
set -eu
cd "$(dirname "$0")/.."

if ! cmp -s package-lock.json node_modules/.crannog-lock; then
	# Now and then a registry does not answer.
	try=1
	until npm ci --no-audit --no-fund --ignore-scripts --fetch-retries 5 --loglevel=error; do
		[ "$try" -lt 3 ] || exit 1
		try=$((try + 1))
		sleep 5
	done
	cp package-lock.json node_modules/.crannog-lock
fi
