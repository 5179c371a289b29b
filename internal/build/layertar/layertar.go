// Package layertar owns the format of a layer: sorted and without data about the machine or the
// time, so that the same files always have the same digest.
package layertar

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/gzip"

	"github.com/crannog/crannog/internal/image/blob"
)

// Layer is a layer in the blob store.
type Layer struct {
	Digest, DiffID v1.Hash
	Size           int64
}

// Writer writes a layer into an unnamed file.
type Writer struct {
	latest  time.Time
	f       *os.File
	plain   hash.Hash
	packed  hash.Hash
	gz      *gzip.Writer
	tar     *tar.Writer
	Entries int
}

// New returns a Writer. Times after latest are replaced by latest; with a zero latest, times are
// preserved.
func New(dir string, latest time.Time) (*Writer, error) {
	f, err := os.CreateTemp(dir, ".layer-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	w := &Writer{latest: latest, f: f, plain: sha256.New(), packed: sha256.New()}
	w.gz = gzip.NewWriter(io.MultiWriter(f, w.packed))
	w.tar = tar.NewWriter(io.MultiWriter(w.gz, w.plain))
	return w, nil
}

// Close drops the layer if it was not stored.
func (w *Writer) Close() { _ = w.f.Close() }

// Add writes an entry. content is nil except for regular files.
func (w *Writer) Add(h tar.Header, content io.Reader) error {
	h.Uname, h.Gname, h.AccessTime, h.ChangeTime = "", "", time.Time{}, time.Time{}
	h.ModTime = h.ModTime.UTC().Truncate(time.Second)
	if !w.latest.IsZero() && h.ModTime.After(w.latest) {
		h.ModTime = w.latest
	}
	for key := range h.PAXRecords {
		// Other attributes belong to the overlay from which the file was read.
		if !strings.HasPrefix(key, "SCHILY.xattr.user.") && key != "SCHILY.xattr.security.capability" {
			delete(h.PAXRecords, key)
		}
	}
	h.Format = tar.FormatPAX
	if err := w.tar.WriteHeader(&h); err != nil {
		return err
	}
	w.Entries++
	if content == nil {
		return nil
	}
	_, err := io.Copy(w.tar, content)
	return err
}

// Store completes the layer and adds it to the blob store.
func (w *Writer) Store(ctx context.Context, blobs *blob.Store) (Layer, error) {
	if err := errors.Join(w.tar.Close(), w.gz.Close()); err != nil {
		return Layer{}, err
	}
	size, err := w.f.Seek(0, io.SeekCurrent)
	if err != nil {
		return Layer{}, err
	}
	l := Layer{Digest: sumOf(w.packed), DiffID: sumOf(w.plain), Size: size}
	draft, err := blobs.Begin(ctx, l.Digest, size)
	if err != nil || draft == nil {
		return l, err
	}
	defer draft.Close()
	if _, err := w.f.Seek(draft.At(), io.SeekStart); err != nil {
		return l, err
	}
	if _, err := io.Copy(draft, w.f); err != nil {
		return l, err
	}
	return l, draft.Commit()
}

func sumOf(h hash.Hash) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(h.Sum(nil))}
}
