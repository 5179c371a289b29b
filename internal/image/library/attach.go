package library

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
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

// Attached lists the files that are attached to an image, in the registry of its name or of another
// name.
func (l *Library) Attached(ctx context.Context, ref, from string) ([]registry.Attached, error) {
	source, subjects, err := l.attachedTo(ref, from)
	if err != nil {
		return nil, err
	}
	return l.registry.Attached(ctx, source, subjects)
}

// ReadAttached fetches an attached file by its digest, or by its media type if only one file has it.
func (l *Library) ReadAttached(ctx context.Context, ref, from, which string) ([]byte, error) {
	source, subjects, err := l.attachedTo(ref, from)
	if err != nil {
		return nil, err
	}
	digest, err := v1.NewHash(which)
	if err != nil {
		list, err := l.registry.Attached(ctx, source, subjects)
		if err != nil {
			return nil, err
		}
		if digest, err = onlyOfType(list, which); err != nil {
			return nil, err
		}
	}
	file, err := l.registry.ReadAttached(ctx, source, subjects, digest)
	return file.Data, err
}

// attachedTo returns where the files of an image are, and to which digests they can be attached.
func (l *Library) attachedTo(ref, from string) (name.Reference, []v1.Hash, error) {
	found, err := l.names.find(ref)
	if err != nil {
		return nil, nil, err
	}
	source, err := registry.Parse(cmp.Or(from, found[0].Name))
	if err != nil {
		return nil, nil, err
	}
	subjects := []v1.Hash{found[0].Manifest}
	if index := found[0].Resolved; index.Hex != "" && index != found[0].Manifest {
		subjects = append(subjects, index)
	}
	return source, subjects, nil
}

// onlyOfType returns the file of a media type.
func onlyOfType(list []registry.Attached, kind string) (digest v1.Hash, err error) {
	count := 0
	for _, a := range list {
		if a.Type == kind {
			digest = a.Digest
			count++
		}
	}
	switch count {
	case 0:
		return digest, fault.Newf(fault.NotFound, "attachment_not_found", "no file of the type %.100q is attached to the image", kind).
			WithHint("list them: crannog image attached IMAGE")
	case 1:
		return digest, nil
	}
	return v1.Hash{}, fault.Newf(fault.Conflict, "attachment_ambiguous", "%d files of the type %.100q are attached to the image", count, kind).
		WithHint("name one by its digest: crannog image attached IMAGE lists them")
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
