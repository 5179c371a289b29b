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

// restrictFiles removes access to the file system. Without Landlock, only the filter (which forbids
// opening files for writing) and the user's rights apply, which the report notes.
func (b *Process) restrictFiles(report *Report) error {
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
	// Remove all rights, then allow reading below Rules.Read.
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
		// A named file cannot be created there, because the filter forbids the system call.
		if err := allowBelow(ruleset, b.rules.Spool, unix.LANDLOCK_ACCESS_FS_WRITE_FILE); err != nil {
			return fmt.Errorf("%s: %w", b.rules.Spool, err)
		}
	}
	if restarts {
		// The restart needs both rights. They remain but are useless, because the filter forbids
		// starting programs, and this program file is not secret.
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

// allowBelow allows reading below a path, and further rights.
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

// Targets adds the targets of symbolic links to paths: the file, and its directory, because a
// resolver's configuration is replaced there whenever the host changes networks. It does not add a
// directory with much of the host's data, such as /run.
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
