// Package metadata owns the metadata that callers attach to files, in headers and in extended
// attributes.
package metadata

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/host/text"
)

const (
	headerPrefix = "X-Metadata-"
	attrPrefix   = "user.e2b."
	// maxKey leaves space for the prefix in an attribute name of 255 bytes.
	maxKey = 246
	// maxTotal limits all keys and values of one file together, because some file systems store
	// them in one block.
	maxTotal = 4096
)

// ErrUnsupported is returned if the file system has no extended attributes.
var ErrUnsupported = errors.New("the file system does not support metadata")

// FromHeader parses the metadata of an upload. The caller of the API sees its errors.
func FromHeader(h http.Header) (map[string]string, error) {
	var set map[string]string
	total := 0
	for name, values := range h {
		if len(name) < len(headerPrefix) || !strings.EqualFold(name[:len(headerPrefix)], headerPrefix) {
			continue
		}
		key := strings.ToLower(name[len(headerPrefix):])
		if key == "" || len(key) > maxKey {
			return nil, fmt.Errorf("metadata key %q must have 1 to %d characters", shorten(key), maxKey)
		}
		if len(values) != 1 {
			return nil, fmt.Errorf("metadata key %q is given more than once", shorten(key))
		}
		if !text.PrintableASCII(key) || !text.PrintableASCII(values[0]) {
			return nil, fmt.Errorf("metadata %q must be printable ASCII", shorten(key))
		}
		if _, ok := set[key]; ok {
			return nil, fmt.Errorf("metadata key %q is given more than once", shorten(key))
		}
		if total += len(key) + len(values[0]); total > maxTotal {
			return nil, fmt.Errorf("metadata is longer than %d bytes", maxTotal)
		}
		if set == nil {
			set = map[string]string{}
		}
		set[key] = values[0]
	}
	return set, nil
}

// shorten returns the beginning of a key for an error.
func shorten(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}

// Read returns the metadata of a file or of a link's target. It returns nil if the file system does
// not support metadata or the user may not read it.
func Read(path string) map[string]string {
	names, err := list(func(buf []byte) (int, error) { return unix.Listxattr(path, buf) })
	if err != nil {
		return nil
	}
	var set map[string]string
	for _, name := range names {
		value, err := get(path, name)
		if err != nil {
			continue // the attribute was removed
		}
		if set == nil {
			set = map[string]string{}
		}
		set[name[len(attrPrefix):]] = value
	}
	return set
}

// Replace replaces the metadata of an open file.
func Replace(fd int, set map[string]string) error {
	old, err := list(func(buf []byte) (int, error) { return unix.Flistxattr(fd, buf) })
	if errors.Is(err, unix.ENOTSUP) {
		if len(set) == 0 {
			return nil
		}
		return ErrUnsupported
	}
	if err != nil {
		return fmt.Errorf("read metadata: %w", err)
	}
	for _, name := range old {
		if _, ok := set[name[len(attrPrefix):]]; ok {
			continue
		}
		if err := unix.Fremovexattr(fd, name); err != nil && !errors.Is(err, unix.ENODATA) {
			return fmt.Errorf("remove metadata: %w", err)
		}
	}
	for key, value := range set {
		err := unix.Fsetxattr(fd, attrPrefix+key, []byte(value), 0)
		if errors.Is(err, unix.ENOTSUP) {
			return ErrUnsupported
		}
		if err != nil {
			return fmt.Errorf("write metadata: %w", err)
		}
	}
	return nil
}

// list returns the names of Crannog's attributes, including the prefix.
func list(call func([]byte) (int, error)) ([]string, error) {
	data, err := grow(call)
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range bytes.SplitSeq(data, []byte{0}) {
		if len(name) > len(attrPrefix) && strings.HasPrefix(string(name), attrPrefix) {
			names = append(names, string(name))
		}
	}
	slices.Sort(names)
	return names, nil
}

func get(path, name string) (string, error) {
	data, err := grow(func(buf []byte) (int, error) { return unix.Getxattr(path, name, buf) })
	return string(data), err
}

// maxAttr is Linux's maximum size of a list or value.
const maxAttr = 64 << 10

// grow calls call with larger buffers until the answer fits. Most files have no attributes, so the
// first buffer is small.
func grow(call func([]byte) (int, error)) ([]byte, error) {
	for size := 512; ; size *= 4 {
		buf := make([]byte, min(size, maxAttr))
		n, err := call(buf)
		if errors.Is(err, unix.ERANGE) && size < maxAttr {
			continue
		}
		if err != nil {
			return nil, err
		}
		return buf[:n], nil
	}
}
