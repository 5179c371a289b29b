#!/bin/sh
# Builds the pages of the console into internal/frontend/console/dist, from where go build embeds
# them. If it cannot build them, it prints the reason and succeeds: the program works without them.
#
#   console/build/build.sh
set -eu
cd "$(dirname "$0")/.."

if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
	echo "console: left out, it needs node and npm"
	exit 0
fi
if ! node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)'; then
	echo "console: left out, it needs node 20.19 or later and this is $(node --version)"
	exit 0
fi

build/packages.sh
npm run -s build -- --logLevel "${CONSOLE_LOG:-warn}"
