package template

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/crannog/crannog/internal/host/durable"
)

const (
	// sumsName is the file of stored checksums in the directory of the templates.
	sumsName = "programs.json"
	// maxSums limits the size of that file.
	maxSums = 1 << 20
	// settled is how old a change must be for a checksum to be stored. Two changes within one tick
	// of the file system's clock give the same identity.
	settled = 2 * time.Second
)

// storedSum is a cachedSum in the file.
type storedSum struct {
	Dev  uint64 `json:"dev"`
	Ino  uint64 `json:"ino"`
	Size int64  `json:"size"`
	Sec  int64  `json:"sec"`
	Nsec int64  `json:"nsec"`
	Sum  string `json:"sum"`
}

// load reads the checksums that an earlier process has stored. Without them, or if they cannot be
// read, everything is read again.
func (v *revision) load() {
	v.cache = make(map[string]cachedSum)
	if v.dir == "" {
		return
	}
	f, err := os.Open(filepath.Join(v.dir, sumsName))
	if err != nil {
		return
	}
	defer f.Close()
	var stored map[string]storedSum
	if json.NewDecoder(io.LimitReader(f, maxSums)).Decode(&stored) != nil {
		return
	}
	for path, s := range stored {
		v.cache[path] = cachedSum{identity{s.Dev, s.Ino, s.Size, s.Sec, s.Nsec}, s.Sum}
	}
}

// save stores the checksums for later processes. It is best effort.
func (v *revision) save(now time.Time) {
	v.changed = false
	if v.dir == "" {
		return
	}
	stored := make(map[string]storedSum, len(v.cache))
	for path, c := range v.cache {
		if now.Sub(time.Unix(c.id.sec, c.id.nsec)) >= settled {
			stored[path] = storedSum{c.id.dev, c.id.ino, c.id.size, c.id.sec, c.id.nsec, c.sum}
		}
	}
	text, err := json.Marshal(stored)
	if err == nil && len(text) <= maxSums {
		_ = durable.Replace(filepath.Join(v.dir, sumsName), text, durable.Options{Draft: ".programs-*", Mode: 0o600})
	}
}
