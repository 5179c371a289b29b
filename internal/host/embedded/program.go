// Package embedded owns the programs that are embedded in this binary. It writes them below the
// state directory, where they can be started, and removes those of earlier versions.
package embedded

import (
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/crannog/crannog/internal/host/durable"
)

// Program returns the path of the program src in files. It writes the program below dir under a
// name derived from its content, so that an upgrade never changes the file of a running sandbox.
// The error is fs.ErrNotExist if the program is not embedded.
func Program(files fs.FS, src, dir string) (string, error) {
	f, err := files.Open(src)
	if err != nil {
		return "", err
	}
	defer f.Close()
	name, size, err := nameOf(f)
	if err != nil {
		return "", fmt.Errorf("%s: %w", src, err)
	}
	path := filepath.Join(dir, name)
	for range maxTries {
		if info, err := os.Stat(path); err != nil || info.Size() != size {
			if err := write(files, src, path); err != nil {
				return "", err
			}
		}
		// Another process may be pruning at this moment.
		if err = use(path); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		// The file on disk is missing, not the embedded program.
		return "", fmt.Errorf("%s: %v", src, err)
	}
	return path, nil
}

// maxTries bounds how often a program is written again because another process removed it.
const maxTries = 3

// write writes the program src to path.
func write(files fs.FS, src, path string) error {
	data, err := fs.ReadFile(files, src)
	if err != nil {
		return fmt.Errorf("%s: %w", src, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("%s: %w", src, err)
	}
	return install(path, data)
}

// hashedBytes is how many of a program's first bytes its name is derived from. The linker writes
// the build ID there, a digest of everything that went into the program.
const hashedBytes = 64 << 10

// nameOf returns a name for a program, from its length and a checksum of its first bytes, and its
// length. It runs at every start of the command line, where reading tens of megabytes would be
// slow. The content comes from the build alone, so a checksum that can be forged is enough.
func nameOf(f fs.File) (string, int64, error) {
	info, err := f.Stat()
	if err != nil {
		return "", 0, err
	}
	sum := fnv.New128a()
	if _, err := io.CopyN(sum, f, hashedBytes); err != nil && !errors.Is(err, io.EOF) {
		return "", 0, err
	}
	return fmt.Sprintf("%s-%x-%s", info.Name(), info.Size(), hex.EncodeToString(sum.Sum(nil))), info.Size(), nil
}

// writeSize is how many bytes of a program one write holds. The kernel caches a file in pages as
// large as the writes, and may map such a page whole. Large pages make a start a fifth cheaper than
// small ones, but the largest would charge an idle sandbox two megabytes for each byte that it
// still needs.
const writeSize = 128 << 10

// draftPrefix is the prefix of the name of a file that is being written.
const draftPrefix = ".new-"

// install makes the file appear in one step, because several servers may start at once.
func install(path string, data []byte) error {
	o := durable.Options{Draft: draftPrefix + "*", Mode: 0o755}
	err := durable.ReplaceWith(path, o, func(w io.Writer) error {
		for piece := range slices.Chunk(data, writeSize) {
			if _, err := w.Write(piece); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
