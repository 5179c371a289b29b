package debian

import (
	"fmt"
	"strings"
)

// setup returns the script that installs the packages in a sandbox. The order is that in which a
// package's scripts find what they need: users and groups, the base directories, then the others.
// Dependencies between essential packages are circular, so dpkg is called with --force-depends.
func setup(suite, mirror string, list []*pkg) []byte {
	var essential, others []string
	for _, p := range list {
		if p.essential {
			essential = append(essential, "/debs/"+p.deb())
		} else {
			others = append(others, "/debs/"+p.deb())
		}
	}
	var b strings.Builder
	b.WriteString(`#!/bin/sh
set -eu
export DEBIAN_FRONTEND=noninteractive DEBCONF_NONINTERACTIVE_SEEN=true LC_ALL=C.UTF-8
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
install() { dpkg --force-depends --force-unsafe-io "$@"; }
# The scripts of base-files use awk, which is installed later.
test -e /usr/bin/awk || ln -s mawk /usr/bin/awk
install --install /debs/base-passwd.deb
install --install /debs/base-files.deb
`)
	fmt.Fprintf(&b, "install --unpack %s\nrm -f /usr/bin/awk\ninstall --configure --pending\n", strings.Join(essential, " "))
	if len(others) > 0 {
		fmt.Fprintf(&b, "install --install %s\n", strings.Join(others, " "))
	}
	b.WriteString("dpkg --audit\n")
	sources := []string{fmt.Sprintf("deb %s %s main", mirror, suite)}
	if mirror == DefaultMirror {
		// Other mirrors need not have these suites.
		sources = append(sources, fmt.Sprintf("deb %s %s-updates main", mirror, suite), fmt.Sprintf("deb %s-security %s-security main", mirror, suite))
	}
	fmt.Fprintf(&b, "printf '%%s\\n' '%s' >/etc/apt/sources.list\n", strings.Join(sources, "' '"))
	b.WriteString(`rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/ldconfig/aux-cache /var/log/*.log /var/log/apt
rm -f /var/lib/dpkg/available-old /var/lib/dpkg/status-old /var/lib/dpkg/diversions-old /var/lib/dpkg/statoverride-old
: >/etc/machine-id
`)
	return []byte(b.String())
}
