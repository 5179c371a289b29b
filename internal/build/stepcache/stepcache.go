// Package stepcache owns the results of earlier builds: the layer of each step, by the digest of
// everything that the step depends on. The cache contains no files; the layers are blobs of the
// image store.
package stepcache

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/crannog/crannog/internal/build/layertar"
	"github.com/crannog/crannog/internal/host/durable"
)

// Entry is the result of a step.
type Entry struct {
	// Layer is nil for a step that changed nothing.
	Layer *layertar.Layer
	Made  time.Time
}

// Cache is a directory of entries. It is safe for concurrent use, also by processes.
type Cache struct{ dir string }

// Keep is how long an unused entry is stored.
const Keep = 14 * 24 * time.Hour

// Open opens a cache and creates the directory if necessary.
func Open(dir string) (*Cache, error) { return &Cache{dir}, os.MkdirAll(dir, 0o700) }

// Key returns the key of a step. Parts are delimited, so that moving text from one to the next
// changes the key.
func Key(parts ...string) string {
	sum := sha256.New()
	for _, p := range parts {
		one := sha256.Sum256([]byte(p))
		sum.Write(one[:])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// Find returns the result of a step, and false if there is none.
func (c *Cache) Find(key string) (Entry, bool) {
	path := filepath.Join(c.dir, key+".json")
	data, err := os.ReadFile(path)
	if err != nil {
		return Entry{}, false
	}
	var e Entry
	if json.Unmarshal(data, &e) != nil {
		return Entry{}, false
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // this time only decides when the entry is removed
	return e, true
}

// Put stores the result of a step.
func (c *Cache) Put(key string, e Entry) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(c.dir, key+".json"), data, durable.Options{Draft: ".entry-*", Mode: 0o600})
}

// Blobs returns the layers to which entries refer. Entries that have not been used for long are
// removed.
func (c *Cache) Blobs() (map[v1.Hash]bool, error) {
	files, err := os.ReadDir(c.dir)
	if err != nil {
		return nil, err
	}
	out := map[v1.Hash]bool{}
	for _, f := range files {
		key, ok := strings.CutSuffix(f.Name(), ".json")
		info, err := f.Info()
		if errors.Is(err, fs.ErrNotExist) || !ok {
			continue
		}
		if err != nil {
			return nil, err
		}
		if time.Since(info.ModTime()) > Keep {
			_ = os.Remove(filepath.Join(c.dir, f.Name()))
			continue
		}
		data, err := os.ReadFile(filepath.Join(c.dir, key+".json"))
		if err != nil {
			continue
		}
		var e Entry
		if json.Unmarshal(data, &e) == nil && e.Layer != nil {
			out[e.Layer.Digest] = true
		}
	}
	return out, nil
}
