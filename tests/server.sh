# Starts and ends a server on a free port with its own state directory, for tests with npm packages.
# A run.sh first sets
#   CRANNOG   the program, and
#   sweep     a function that removes the sandboxes that the tests left, or fails,
# and then sources this file.

. ../npm.sh

server=
work=$(mktemp -d)

# clean removes everything when the tests end.
clean() {
	if [ -n "$server" ]; then
		sweep >/dev/null 2>&1 || true
		kill "$server" 2>/dev/null || true
		wait "$server" 2>/dev/null || true
	fi
	rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

# start starts the server and sets url. The server's output is in $work/start.
start() {
	# In its own session, a terminal's interrupt does not end the server before its sandboxes are
	# removed.
	setsid "$CRANNOG" serve --listen 127.0.0.1:0 --state "$work/state" >"$work/start" 2>"$work/log" &
	server=$!
	tries=0
	until grep -q '^export E2B_API_KEY=' "$work/start"; do
		tries=$((tries + 1))
		if [ "$tries" -gt 12000 ] || ! kill -0 "$server" 2>/dev/null; then
			echo "the server did not start:" >&2
			cat "$work/start" "$work/log" >&2
			exit 1
		fi
		sleep 0.1
	done
	url=$(sed -n 's/^export E2B_API_URL=//p' "$work/start" | tr -d "\"'")
}

# finish exits with a status. It fails if the server died during the tests, still has a sandbox of
# theirs, or does not end cleanly.
finish() {
	status=$1
	if ! kill -0 "$server" 2>/dev/null; then
		echo "the server died:" >&2
		cat "$work/log" >&2
		exit 1
	fi
	sweep || status=1
	kill "$server"
	if ! wait "$server"; then
		echo "the server ended with an error:" >&2
		status=1
	fi
	server=
	if [ "$status" -ne 0 ]; then
		echo "--- server log" >&2
		tail -n 100 "$work/log" >&2
	fi
	exit "$status"
}
