package template

import "github.com/crannog/crannog/internal/guest"

// ownFiles are the template's own files. The host's files are not shown: passwd names its users,
// hosts and resolv.conf describe its network, and profile contains its administrator's settings.
var ownFiles = map[string]file{
	"/etc/passwd": {mode: 0o644, data: []byte(`root:x:0:0:root:/root:/bin/bash
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
bin:x:2:2:bin:/bin:/usr/sbin/nologin
www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin
user:x:1000:1000:user:/home/user:/bin/bash
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
`)},
	"/etc/group": {mode: 0o644, data: []byte(`root:x:0:
daemon:x:1:
bin:x:2:
tty:x:5:
mail:x:8:
www-data:x:33:
utmp:x:43:
staff:x:50:
user:x:1000:
nogroup:x:65534:
`)},
	"/etc/shadow": {mode: 0o600, data: []byte("root:*:19000:0:99999:7:::\nuser:*:19000:0:99999:7:::\n")},
	"/etc/nsswitch.conf": {mode: 0o644, data: []byte(`passwd: files
group: files
shadow: files
hosts: files dns
networks: files
protocols: files
services: files
ethers: files
rpc: files
`)},
	"/etc/hosts":       {mode: 0o644, data: []byte("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")},
	"/etc/hostname":    {mode: 0o644, data: []byte("crannog\n")},
	"/etc/resolv.conf": {mode: 0o644, data: []byte("# There is no name server: this sandbox has no network.\noptions timeout:1 attempts:1\n")},
	"/etc/host.conf":   {mode: 0o644, data: []byte("multi on\n")},
	"/etc/timezone":    {mode: 0o644, data: []byte("Etc/UTC\n")},
	// A login shell reads this file for every command of an E2B client, so it starts no program.
	// PATH stays if the caller set one.
	"/etc/profile": {mode: 0o644, data: []byte(`PATH="${PATH:-` + guest.PathOf("$HOME") + `}"
export PATH
if [ "${PS1-}" ] && [ "${BASH-}" ] && [ -r /etc/bash.bashrc ]; then
  . /etc/bash.bashrc
fi
`)},
	"/etc/bash.bashrc": {mode: 0o644, data: []byte(`[ -z "${PS1-}" ] && return
shopt -s checkwinsize
PS1='\u@\h:\w\$ '
`)},
	// The workspace's files belong to the sandbox's user. git would refuse to work on them as root,
	// and in a sandbox that warning protects nothing. An index from the host has device and inode
	// numbers, owners and, in a copy, times of another file system. If git compared them, it would
	// read every file again, which takes seven times as long with 30,000 files.
	"/etc/gitconfig": {mode: 0o644, data: []byte("[safe]\n\tdirectory = *\n[core]\n\tcheckStat = minimal\n\ttrustctime = false\n")},
	// Package managers install for the user, or for root over the system's own packages. Debian
	// lets only apt change its Python, which protects a permanent system. Packages installed in a
	// sandbox are in its own layer and end with it.
	"/etc/pip.conf":   {mode: 0o644, data: []byte("[global]\nbreak-system-packages = true\nroot-user-action = ignore\n")},
	"/etc/uv/uv.toml": {mode: 0o644, data: []byte("[pip]\nbreak-system-packages = true\n")},
	"/etc/gemrc":      {mode: 0o644, data: []byte("install: --user-install --bindir ~/.local/bin\nupdate: --user-install --bindir ~/.local/bin\n")},
}

// ownLinks point to /proc and /usr, as on any system.
var ownLinks = map[string]string{
	"/etc/mtab":      "/proc/self/mounts",
	"/etc/localtime": "/usr/share/zoneinfo/Etc/UTC",
	"/var/run":       "/run",
	"/var/lock":      "/run/lock",
}
