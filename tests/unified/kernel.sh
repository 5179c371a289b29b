#!/usr/bin/env bash
# Downloads the stock kernel of Debian 12 for tests/unified and the engine microvm, and unpacks it
# without installing it: 70 MB are downloaded, 12 are kept. If that fails, it prints a message, and
# exits with an error if CRANNOG_TEST_HOST is must.
set -euo pipefail
cd "$(dirname "$0")"
[ ! -e kernel/complete ] || exit 0

unavailable() {
  echo "tests/unified: no kernel: $1" >&2
  [ "${CRANNOG_TEST_HOST:-}" != must ] || exit 1
  exit 0
}

for program in apt-get apt-cache dpkg-deb tar; do
  command -v "$program" >/dev/null || unavailable "this host has no $program"
done
newest() { apt-cache depends linux-image-amd64 2>/dev/null | awk '$1 == "Depends:" && $2 ~ /^linux-image-/ { print $2; exit }'; }
package=$(newest)
if [ -z "$package" ] && [ "$(id -u)" = 0 ]; then
  apt-get -q -o Acquire::Retries=3 update
  package=$(newest)
fi
[ -n "$package" ] || unavailable "apt knows no linux-image-amd64; apt-get update may help"

work=$(mktemp -d ./kernel.XXXXXX)
trap 'rm -rf "$work"' EXIT
# Retry, because a remote server sometimes does not answer.
try=1
until (cd "$work" && apt-get -q -o APT::Sandbox::User= -o Acquire::Retries=3 download "$package"); do
  [ "$try" -lt 3 ] || unavailable "$package could not be downloaded"
  try=$((try + 1))
  sleep 5
done
patterns=('./boot/vmlinuz-*')
for module in virtio virtio_ring virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci netfs fscache 9pnet 9pnet_virtio 9p \
  virtio_mmio virtio_console virtio_blk virtio_net net_failover failover erofs overlay libcrc32c crc32c_generic; do
  patterns+=("*/$module.ko")
done
mkdir "$work/kernel"
dpkg-deb --fsys-tarfile "$work"/*.deb | tar -x -C "$work/kernel" --wildcards --transform 's,.*/,,' "${patterns[@]}"
mv "$work"/kernel/vmlinuz-* "$work/kernel/vmlinuz"
rm -rf kernel
touch "$work/kernel/complete"
mv "$work/kernel" kernel
