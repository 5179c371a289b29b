# Sourced by run.sh: builds the image e2bdev/base on the test's server, on which templates are
# based. It has busybox as its shell, also under the name bash.

make_base_image() {
	dir=$work/base-image
	mkdir -p "$dir/root/bin" "$dir/root/etc" && mkdir -m 1777 "$dir/root/tmp"
	cp "$(command -v busybox)" "$dir/root/bin/busybox"
	for applet in $("$dir/root/bin/busybox" --list); do
		[ "$applet" = busybox ] || ln -s busybox "$dir/root/bin/$applet"
	done
	printf '#!/bin/sh\nexec /bin/sh "$@"\n' >"$dir/root/bin/bash"
	chmod 755 "$dir/root/bin/bash"
	echo 'root:x:0:0:root:/root:/bin/sh' >"$dir/root/etc/passwd"
	echo 'root:x:0:' >"$dir/root/etc/group"
	printf 'FROM scratch\nCOPY root/ /\n' >"$dir/Dockerfile"
	"$CRANNOG" template build --state "$work/state" --progress plain -t e2bdev/base "$dir" >"$work/base-image.log" 2>&1 || {
		cat "$work/base-image.log" >&2
		exit 1
	}
}
