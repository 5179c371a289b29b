package library

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/crannog/crannog/internal/host/durable"
	"github.com/crannog/crannog/internal/image/registry"
)

// entry is a name with the image to which it refers.
type entry struct {
	Name     string // in full, with registry and tag or digest
	Manifest v1.Hash
	Resolved v1.Hash
	Source   string
	Added    time.Time
}

// names stores one file for each name, so that processes add and remove names independently.
type names struct{ dir string }

// openNames creates the directory if it does not exist.
func openNames(dir string) (*names, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("names of images: %w", err)
	}
	return &names{dir}, nil
}

// file returns the path of a name's file. The file name is a hash, because a name has characters
// that a file name cannot have.
func (n *names) file(name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(n.dir, hex.EncodeToString(sum[:16])+".json")
}

// put stores a name.
func (n *names) put(e entry) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return durable.Replace(n.file(e.Name), data, durable.Options{Draft: ".name-*", Mode: 0o600, Sync: true})
}

// remove removes a name and reports whether it existed.
func (n *names) remove(name string) (bool, error) {
	err := os.Remove(n.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, durable.SyncDir(n.dir)
}

// list returns all names, sorted.
func (n *names) list() ([]entry, error) {
	files, err := os.ReadDir(n.dir)
	if err != nil {
		return nil, fmt.Errorf("names of images: %w", err)
	}
	var list []entry
	for _, f := range files {
		if filepath.Ext(f.Name()) != ".json" {
			continue
		}
		e, err := readEntry(filepath.Join(n.dir, f.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("names of images: %s: %w", f.Name(), err)
		}
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// readEntry reads the file of a name.
func readEntry(path string) (e entry, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return e, err
	}
	return e, json.Unmarshal(data, &e)
}

// exists reports whether the library has an image with a name.
func (n *names) exists(text string) (bool, error) {
	ref, err := registry.Parse(text)
	if err != nil {
		return false, nil //nolint:nilerr // text that is not a name refers to nothing
	}
	_, err = os.Stat(n.file(ref.Name()))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// minDigestLength is the minimum number of characters of a digest that identify an image.
const minDigestLength = 8

// find returns the entries for a name, or for the beginning of a digest with or without "sha256:".
// A digest may have several names.
func (n *names) find(text string) ([]entry, error) {
	all, err := n.list()
	if err != nil {
		return nil, err
	}
	if ref, err := registry.Parse(text); err == nil {
		for _, e := range all {
			if e.Name == ref.Name() {
				return []entry{e}, nil
			}
		}
	}
	hexPart := strings.TrimPrefix(text, "sha256:")
	if len(hexPart) < minDigestLength {
		return nil, Unknown(text)
	}
	var found []entry
	for _, e := range all {
		if strings.HasPrefix(e.Manifest.Hex, hexPart) {
			found = append(found, e)
		}
	}
	if len(found) == 0 {
		return nil, Unknown(text)
	}
	return found, nil
}
