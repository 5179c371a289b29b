// Package volume owns the volumes of a state directory: named directories that outlive sandboxes.
// Each has its own file system in a file of a fixed size, which is how its quota is enforced, or is
// a plain directory without a quota.
package volume

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/durable"
	"github.com/crannog/crannog/internal/host/pattern"
)

// IDPrefix is the beginning of the ID of a volume.
const IDPrefix = "v"

// UserID is the user ID and the group ID of the sandbox's user, who owns new volumes.
const UserID = 1000

// Volume describes a volume.
type Volume struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Owner string `json:"owner,omitempty"` // ID of the key, or "" for local callers
	// Token opens the content of the volume through the E2B API.
	Token string `json:"token"`
	// Bytes is the size of the volume's file system, and Files the number of files that it can
	// hold. Both are zero if the volume has no quota.
	Bytes   int64     `json:"bytes,omitempty"`
	Files   int64     `json:"files,omitempty"`
	Created time.Time `json:"created"`
	// From is the name of the volume of which this one is a snapshot.
	From string `json:"from,omitempty"`
}

// Enforced reports whether the volume has a quota. Every quota is enforced.
func (v Volume) Enforced() bool { return v.Bytes > 0 }

// Usage is the space that a volume uses and can use.
type Usage struct {
	UsedBytes, UsedFiles   int64
	TotalBytes, TotalFiles int64 // of the file system; zero without a quota
}

// Store holds the volumes below a directory. Several processes may share it.
type Store struct {
	dir string
	log *slog.Logger
	// step is called after each step that changes the disk. Tests end the process there.
	step func(name string)
}

// Open returns the store in a directory, which it creates with the first volume.
func Open(dir string, log *slog.Logger) *Store {
	return &Store{dir: dir, log: log, step: func(string) {}}
}

// Names of the files of a volume, and of the directories that are no volumes.
const (
	metaName    = "volume.json"
	imageName   = "image"
	mountName   = "mnt"
	treeName    = "tree"
	lockName    = ".lock"
	draftPrefix = ".draft-"
)

var namePattern = pattern.New(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

// maxName is the maximum length of a name.
const maxName = 63

// CheckName refuses a name that is not a single harmless path element.
func CheckName(name string) error {
	if len(name) > maxName || !namePattern.MatchString(name) {
		return fault.Newf(fault.Invalid, "volume_name_invalid",
			"the name of a volume is 1 to %d characters of a-z, A-Z, 0-9, _, . and -, and begins with a letter or digit", maxName)
	}
	return nil
}

func notFound(ref string) error {
	return fault.Newf(fault.NotFound, "volume_not_found", "there is no volume %.100q", ref).
		WithHint("crannog volume ls lists the volumes")
}

func (s *Store) at(id string) string { return filepath.Join(s.dir, id) }

// lock excludes other changes of volumes, also in other processes, until the file is closed.
func (s *Store) lock() (*os.File, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("volumes: %w", err)
	}
	return flock(filepath.Join(s.dir, lockName), unix.LOCK_EX)
}

// flock opens a file and locks it until it is closed or the process ends.
func flock(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Get returns a volume by its ID.
func (s *Store) Get(id string) (Volume, error) {
	if CheckName(id) != nil {
		return Volume{}, notFound(id)
	}
	data, err := os.ReadFile(filepath.Join(s.at(id), metaName))
	if errors.Is(err, fs.ErrNotExist) {
		return Volume{}, notFound(id)
	}
	var v Volume
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	if err != nil {
		return v, fmt.Errorf("volume %s: %w", id, err)
	}
	return v, nil
}

// List returns all volumes by their names.
func (s *Store) List() ([]Volume, error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("volumes: %w", err)
	}
	var list []Volume
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		v, err := s.Get(e.Name())
		if fault.KindOf(err) == fault.NotFound {
			continue // it was removed since the directory was read
		}
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b Volume) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return list, nil
}

// writeMeta writes the description of a volume into its directory.
func writeMeta(dir string, v Volume) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(dir, metaName), data, durable.Options{Sync: true})
}
