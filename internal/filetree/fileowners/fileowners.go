// Package fileowners owns the table of owners and set-id bits of the files in a directory, as a
// sandbox sees them. The files on the host cannot have these: without root they all have one owner,
// and a set-id bit would give rights to users of the host.
package fileowners

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// MaxEntries bounds a table, which is in the memory of each sandbox's kernel.
const MaxEntries = 1 << 16

// Owner is the owner of a file, and its set-user-ID and set-group-ID bits.
type Owner struct {
	UID   uint32 `json:"u,omitempty"`
	GID   uint32 `json:"g,omitempty"`
	SetID uint16 `json:"s,omitempty"` // unix.S_ISUID and unix.S_ISGID
}

// Table maps absolute paths in the sandbox to owners. A file without an entry has the owner of the
// nearest directory above with an entry, without its bits. If there is none, it has the owner of
// the host's file. The zero Table changes nothing.
type Table map[string]Owner

// Of returns the owner of the file at a clean absolute path. It returns false if no entry applies.
func (t Table) Of(file string) (Owner, bool) {
	if len(t) == 0 {
		return Owner{}, false
	}
	if o, ok := t[file]; ok {
		return o, true
	}
	for dir := path.Dir(file); len(dir) > 1; dir = path.Dir(dir) {
		if o, ok := t[dir]; ok {
			o.SetID = 0
			return o, true
		}
	}
	return Owner{}, false
}

// Read reads a table from a file with the output of Text.
func Read(name string) (Table, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("owners of files: %w", err)
	}
	return Parse(data)
}

// Parse parses the output of Text.
func Parse(data []byte) (Table, error) {
	var t Table
	if err := json.Unmarshal(data, &t); err != nil {
		return nil, fmt.Errorf("owners of files: %w", err)
	}
	for _, file := range slices.Sorted(maps.Keys(t)) {
		if !path.IsAbs(file) || path.Clean(file) != file || strings.ContainsRune(file, 0) {
			return nil, fmt.Errorf("owners of files: %.200q is not a clean absolute path", file)
		}
	}
	return t, nil
}

// Text returns the text of a table. Equal tables have equal texts.
func (t Table) Text() ([]byte, error) { return json.Marshal(t) }
