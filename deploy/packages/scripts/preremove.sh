#!/bin/sh
# Stops the server if the package is removed, not if it is upgraded. Sandboxes are ended first.
set -e
case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	if systemctl is-active --quiet crannog.service; then
		/usr/bin/crannog rm --all --yes --quiet || true
	fi
	systemctl disable --now crannog.service crannog.socket || true
fi
