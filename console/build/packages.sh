#!/bin/sh
# Installs the packages of the console's build, exactly as in the lock file, and only if it has
# changed. Scripts of packages are not run.
set -eu
cd "$(dirname "$0")/.."

if ! cmp -s package-lock.json node_modules/.crannog-lock; then
	# Retry, because a registry sometimes does not answer.
	try=1
	until npm ci --no-audit --no-fund --ignore-scripts --fetch-retries 5 --loglevel=error; do
		[ "$try" -lt 3 ] || exit 1
		try=$((try + 1))
		sleep 5
	done
	cp package-lock.json node_modules/.crannog-lock
fi
