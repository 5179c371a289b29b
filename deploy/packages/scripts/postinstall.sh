#!/bin/sh
# Starts and enables nothing: the server runs once "systemctl enable --now crannog.service" was
# called. After an upgrade, a server that runs is started again; its sandboxes keep running.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
	case "$1" in
	configure) upgrade="$2" ;; # Debian: the version that was configured before
	2) upgrade=1 ;;            # RPM: how many versions are installed
	*) upgrade= ;;
	esac
	if [ -n "$upgrade" ]; then
		systemctl try-restart crannog.service || true
	fi
fi
