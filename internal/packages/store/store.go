// Package store owns the files of the package cache: contents under their SHA-256, and an entry for
// each URL that says which content it has. Servers and commands write it. The egress gateway only
// reads it, through a descriptor of the directory, so that a sandbox that takes over the gateway
// cannot change what other sandboxes get.
package store

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/diskroom"
	"github.com/crannog/crannog/internal/host/durable"
	"github.com/crannog/crannog/internal/packages"
)

// DirName is the directory in the state directory.
const DirName = "packages"

const (
	blobsDir   = "blobs"
	entriesDir = "entries"
	// advisoriesDir has the advisory databases. They are no part of the cache: nothing here removes
	// them, because the gate refuses packages without them.
	advisoriesDir = "advisories"
	// resultsDir has what the server found in contents, under their SHA-256.
	resultsDir = "results"
	// keyringsDir has the keys of archives, which are no part of the cache either.
	keyringsDir = "keyrings"
	// draftPattern is the pattern of names of unfinished files.
	draftPattern = ".draft-*"
	// MaxBlob is the largest content that is stored, except of images.
	MaxBlob = 1 << 30
	// MaxLayer is the largest content of images that is stored. Layers with models and toolchains
	// have some gigabytes.
	MaxLayer = 16 << 30
	// maxEntry limits an entry's file.
	maxEntry = 64 << 10
	// maxText limits the texts of an entry, which registries and sandboxes choose.
	maxText = 4 << 10
)

// Entry describes the content of one URL.
type Entry struct {
	// Key is the URL.
	Key       string             `json:"key"`
	Ecosystem packages.Ecosystem `json:"ecosystem"`
	Name      string             `json:"name"`
	Version   string             `json:"version,omitempty"` // of a file; a document has none
	SHA256    string             `json:"sha256"`
	Size      int64              `json:"size"`
	// Integrity is the registry's digest against which the content was verified. A document has
	// none.
	Integrity string    `json:"integrity,omitempty"`
	Type      string    `json:"type,omitempty"` // Content-Type
	Fetched   time.Time `json:"fetched"`
	// Modified is the registry's time of the content, if it stated one.
	Modified time.Time `json:"modified,omitzero"`
}

func (e Entry) check() error {
	sum, err := hex.DecodeString(e.SHA256)
	switch {
	case err != nil || len(sum) != sha256.Size || hex.EncodeToString(sum) != e.SHA256:
		return invalidEntry("its digest is not a SHA-256 in lower case")
	case e.Size < 0 || e.Size > MaxSize(e.Ecosystem):
		return invalidEntry("its size is not within the limits")
	case !packages.Known(e.Ecosystem):
		return invalidEntry("its ecosystem is unknown")
	case e.Key == "" || e.Name == "":
		return invalidEntry("it has no key or no name")
	}
	for _, text := range []string{e.Key, e.Name, e.Version, e.Integrity, e.Type} {
		if len(text) > maxText {
			return invalidEntry("one of its texts is too long")
		}
	}
	return nil
}

// MaxSize returns the largest content of an ecosystem that is stored.
func MaxSize(e packages.Ecosystem) int64 {
	if e == packages.OCI {
		return MaxLayer
	}
	return MaxBlob
}

func invalidEntry(why string) error {
	return fault.New(fault.Invalid, "package_entry", "this is no entry of the package cache: "+why)
}

// Store writes the cache of one state directory. Several processes may do so at the same time.
type Store struct {
	dir    string
	budget int64

	mu      sync.Mutex
	written int64 // bytes since the budget was last checked
	checked bool  // the budget was checked at least once

	usageMu sync.Mutex
	usage   usage
}

// The default budget is a part of the free space, with an upper limit.
const (
	maxDefaultBudget = 10 << 30
	freeSpaceDivisor = 10
)

// Open opens the cache below a state directory. A budget of zero means the default.
func Open(stateDir string, budget int64) (*Store, error) {
	s := &Store{dir: filepath.Join(stateDir, DirName), budget: budget, usage: usage{now: time.Now}}
	if err := Prepare(stateDir); err != nil {
		return nil, err
	}
	if budget == 0 {
		free, _, err := diskroom.Free(s.dir)
		if err != nil {
			return nil, err
		}
		s.budget = min(maxDefaultBudget, free/freeSpaceDivisor)
	}
	return s, nil
}

// Budget returns the disk space of the cache.
func (s *Store) Budget() int64 { return s.budget }

// Prepare creates the directories. They are readable for all users who can enter the state
// directory, because the egress gateway runs as a user without rights.
func Prepare(stateDir string) error {
	dir := filepath.Join(stateDir, DirName)
	for _, d := range []string{dir, filepath.Join(dir, blobsDir), filepath.Join(dir, entriesDir), filepath.Join(dir, resultsDir), filepath.Join(dir, advisoriesDir), filepath.Join(dir, keyringsDir)} {
		if err := mkdir(d); err != nil {
			return err
		}
	}
	return nil
}

// AdvisoryFile returns the path of an ecosystem's advisory database below the cache's directory.
func AdvisoryFile(e packages.Ecosystem) string { return filepath.Join(advisoriesDir, string(e)+".db") }

// KeyringFile is the path of the keys that may sign the lists of Debian archives, below the cache's
// directory.
const KeyringFile = keyringsDir + "/apt.gpg"

// mkdir creates a directory whose mode does not depend on the umask.
func mkdir(path string) error {
	err := os.Mkdir(path, 0o755)
	if os.IsExist(err) {
		return nil
	}
	if err == nil {
		err = os.Chmod(path, 0o755)
	}
	if err != nil {
		return fmt.Errorf("package cache: %w", err)
	}
	return nil
}

// shardPath returns the path of a file below the store. It has a directory for each first byte of
// the sum, because very large directories are slow.
func shardPath(kind, sum string) string { return filepath.Join(kind, sum[:2], sum) }

func keySum(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// Put stores a content and its entry. It compares the content with the entry's digest and size,
// because an attacker may have taken over the process that fetched it. After a crash there is the
// old entry or the complete new one.
func (s *Store) Put(e Entry, content io.Reader) error {
	if err := e.check(); err != nil {
		return err
	}
	if e.Size > s.budget {
		// It would only displace everything else, and then itself.
		return fault.Newf(fault.Exhausted, "package_budget", "%d bytes are more than the whole budget of the package cache, which is %d", e.Size, s.budget)
	}
	path := filepath.Join(s.dir, shardPath(blobsDir, e.SHA256))
	if err := mkdir(filepath.Dir(path)); err != nil {
		return err
	}
	options := durable.Options{Draft: draftPattern, Mode: 0o444, Sync: true}
	err := durable.ReplaceWith(path, options, func(w io.Writer) error {
		sum := sha256.New()
		n, err := io.Copy(io.MultiWriter(w, sum), io.LimitReader(content, e.Size+1))
		if err == nil && (n != e.Size || hex.EncodeToString(sum.Sum(nil)) != e.SHA256) {
			err = fault.New(fault.Invalid, "package_digest", "the content is not what its entry says")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("package cache: %w", err)
	}
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	path = filepath.Join(s.dir, shardPath(entriesDir, keySum(e.Key)))
	if err := mkdir(filepath.Dir(path)); err != nil {
		return err
	}
	options.Mode = 0o644
	if err := durable.Replace(path, text, options); err != nil {
		return fmt.Errorf("package cache: %w", err)
	}
	return s.enforceBudget(e.Size)
}

// enforceBudget removes old entries if the cache exceeds its budget. It checks only after a
// twentieth of the budget was written, because a check reads every entry.
func (s *Store) enforceBudget(written int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written += written
	if s.checked && s.written < s.budget/20 {
		return nil
	}
	s.checked, s.written = true, 0
	done, err := s.prune(s.budget)
	s.noteEvicted(done)
	return err
}
