package library

import (
	"context"
	"fmt"
	"io"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/registry"
)

// Attach sends a file of this host about an image to the registry of the image's name, or of another
// name, where the image must be. It returns the digest by which the registry stores the file.
func (l *Library) Attach(ctx context.Context, ref, to, path, mediaType string) (v1.Hash, error) {
	release, err := l.hold(ctx, false)
	if err != nil {
		return v1.Hash{}, err
	}
	defer release()
	target, img, err := l.pushTarget(ref, to)
	if err != nil {
		return v1.Hash{}, err
	}
	data, err := readAttachment(path)
	if err != nil {
		return v1.Hash{}, err
	}
	return l.registry.Attach(ctx, target, img, registry.Attachment{Type: mediaType, Data: data})
}

// readAttachment reads a regular file, up to one byte more than the limit, which Attach checks.
func readAttachment(path string) ([]byte, error) {
	unreadable := func(err error) error {
		return fault.Wrap(err, fault.Invalid, "attachment_unreadable", fmt.Sprintf("%.500s cannot be read", path))
	}
	// Without this flag, opening a named pipe waits for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, unreadable(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, unreadable(err)
	}
	if !info.Mode().IsRegular() { // a device could never end
		return nil, fault.Newf(fault.Invalid, "attachment_unreadable", "%.500s is not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, registry.MaxAttachment+1))
	if err != nil {
		return nil, unreadable(err)
	}
	return data, nil
}
