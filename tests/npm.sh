# Functions of all tests with npm packages, sourced in their directory.

# packages installs the packages of the lock file here, if it is newer than the installation.
# Scripts of packages are not run.
packages() {
	if [ ! -e node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
		# Retry, because a registry sometimes does not answer.
		try=1
		until npm ci --no-audit --no-fund --ignore-scripts --fetch-retries 5; do
			[ "$try" -lt 3 ] || exit 1
			try=$((try + 1))
			sleep 5
		done
		touch node_modules/.package-lock.json
	fi
}

# How much slower this machine is than the reference of the tests' deadlines.
CRANNOG_TEST_SPEED=${CRANNOG_TEST_SPEED:-$(cd "$(git rev-parse --show-toplevel)" && CGO_ENABLED=0 go run ./tests/speed)}
export CRANNOG_TEST_SPEED
