#!/bin/sh
# Installs what the console is built from, exactly as the lock file has it, and
# only if that changed since. Scripts of packages are not run.
set -eu
cd "$(dirname "$0")/.."

if ! cmp -s package-lock.json node_modules/.crannog-lock; then
	npm ci --no-audit --no-fund --ignore-scripts --loglevel=error
	cp package-lock.json node_modules/.crannog-lock
fi
