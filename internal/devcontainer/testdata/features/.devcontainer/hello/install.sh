#!/bin/sh
set -e
mkdir -p /opt/hello
echo "$GREETING, $_REMOTE_USER, loud=$LOUD" > /opt/hello/greeting
