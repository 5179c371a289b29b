package gvisor

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// killStrays ends processes of this box that no record names, because the
// server or the child that made them was killed before it could write them
// down. They are known by their program name and their last argument, the
// box's kernel; only processes of our own user can be signalled at all. A child
// that still boots may start more while we look, so it goes first and we look
// until nothing is found.
func (b *box) killStrays() {
	for {
		strays := b.strays()
		for _, p := range strays {
			if err := p.kill(10 * time.Second); err != nil {
				b.e.log.Error("kill stray", "sandbox", b.rec.ID, "err", err)
				return
			}
		}
		if len(strays) == 0 {
			return
		}
	}
}

// strays lists the box's processes, the booting child first.
func (b *box) strays() []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var boot, rest []process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		data, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err != nil || len(data) == 0 {
			continue
		}
		args := strings.Split(strings.TrimRight(string(data), "\x00"), "\x00")
		p := processOf(pid)
		if args[len(args)-1] != b.rec.Kernel || !p.alive() {
			continue
		}
		if args[0] == bootArg0 {
			boot = append(boot, p)
		} else if strings.HasPrefix(args[0], "runsc-") {
			rest = append(rest, p)
		}
	}
	return append(boot, rest...)
}
