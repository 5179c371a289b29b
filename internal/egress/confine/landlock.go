package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/landlock"
)

// restrictFiles removes access to the file system. Without Landlock, the filter, under which
// nothing can be opened for writing, and the user's rights remain; the report says so.
func (b *Begun) restrictFiles(report *Report) error {
	version, err := landlock.Version()
	if err != nil {
		return err
	}
	if version == 0 {
		report.Notes = append(report.Notes, "this kernel has no Landlock: files that its user may read stay readable to the process")
		return nil
	}
	// The process dials and never listens, so that an attacker who takes it over cannot open a port
	// for others on the host.
	network := uint64(0)
	if version >= landlock.BindTCP {
		network = unix.LANDLOCK_ACCESS_NET_BIND_TCP
	}
	// All rights are removed; reading is allowed again below Rules.Read.
	ruleset, err := landlock.New(landlock.Files(version), network)
	if err != nil {
		return err
	}
	defer ruleset.Close()
	for _, path := range b.rules.Read {
		if err := allowBelow(ruleset, path, 0); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if b.rules.Spool != "" {
		// A named file cannot be created in it: the filter has no call for that.
		if err := allowBelow(ruleset, b.rules.Spool, unix.LANDLOCK_ACCESS_FS_WRITE_FILE); err != nil {
			return fmt.Errorf("%s: %w", b.rules.Spool, err)
		}
	}
	if staged {
		// The program is started again, which needs both rights. They remain, and are useless: the
		// filter has no call to start a program, and nothing in this one is secret.
		if err := allowBelow(ruleset, self, unix.LANDLOCK_ACCESS_FS_EXECUTE); err != nil {
			return fmt.Errorf("%s: %w", self, err)
		}
		for _, path := range b.rules.Start {
			if err := allowBelow(ruleset, path, 0); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	if err := ruleset.Restrict(change); err != nil {
		return err
	}
	report.Landlock = version
	return nil
}

// allowBelow allows reading again, and further rights.
func allowBelow(ruleset *landlock.Ruleset, path string, more uint64) error {
	f, err := os.OpenFile(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	rights := unix.LANDLOCK_ACCESS_FS_READ_FILE | more
	if info.IsDir() {
		rights |= unix.LANDLOCK_ACCESS_FS_READ_DIR
	}
	return ruleset.AllowFile(f, rights)
}

// Targets adds to paths the targets of their symbolic links: the file, and its directory, because a
// resolver's configuration is replaced there each time the host changes networks. It does not add a
// directory that holds half of the host, such as /run.
func Targets(paths ...string) []string {
	out := slices.Clone(paths)
	for _, path := range paths {
		target, err := filepath.EvalSymlinks(path)
		if err != nil || target == filepath.Clean(path) {
			continue
		}
		out = append(out, target)
		if dir := filepath.Dir(target); filepath.Dir(dir) != "/" {
			out = append(out, dir)
		}
	}
	return out
}
