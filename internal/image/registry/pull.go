package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/blob"
	"github.com/crannog/crannog/internal/image/manifest"
)

// pullFrom pulls an image from one registry. Once the manifest is known, everything is requested by
// digest, so that the result does not change if a tag is moved during the pull.
func (c *Client) pullFrom(ctx context.Context, ref name.Reference, platform v1.Platform, blobs *blob.Store, report func(Event)) (Pulled, error) {
	repo, err := c.open(ctx, ref.Context(), toPull)
	if err != nil {
		return Pulled{}, err
	}
	found, err := repo.manifest(ctx, ref)
	if err != nil {
		return Pulled{}, err
	}
	pulled := Pulled{Resolved: found.Digest}
	if manifest.IsIndex(found.MediaType) {
		child, err := manifest.Choose(found.Manifest, platform)
		if err != nil {
			return Pulled{}, err
		}
		if found, err = repo.manifest(ctx, repo.Digest(child.Digest.String())); err != nil {
			return Pulled{}, err
		}
	}
	m, err := manifest.Parse(found.Manifest)
	if err != nil {
		return Pulled{}, err
	}
	if err := c.o.Reserve(missing(m, blobs)); err != nil {
		return Pulled{}, err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(c.o.Parallel)
	seen := map[v1.Hash]bool{}
	for _, d := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if seen[d.Digest] {
			continue
		}
		seen[d.Digest] = true
		group.Go(func() error { return c.fetch(groupCtx, repo, d, blobs, report) })
	}
	if err := group.Wait(); err != nil {
		return Pulled{}, err
	}
	// The manifest comes last, so that a manifest in the store has all of its blobs.
	if pulled.Manifest, err = blobs.Put(found.Manifest); err != nil {
		return Pulled{}, diskError(err)
	}
	if pulled.Manifest != found.Digest {
		return Pulled{}, fault.Newf(fault.Unavailable, blob.CodeWrong, "the registry states the digest %s for the manifest, but its digest is %s", found.Digest, pulled.Manifest)
	}
	return pulled, nil
}

// missing returns how many bytes of an image are not in the store.
func missing(m *v1.Manifest, blobs *blob.Store) (bytes int64) {
	for _, d := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if _, ok := blobs.Size(d.Digest); !ok {
			bytes += d.Size
		}
	}
	return bytes
}

// manifest fetches a manifest or an index. If it is requested by its digest, the library compares
// the digest.
func (r *repository) manifest(ctx context.Context, ref name.Reference) (*remote.Descriptor, error) {
	target := name.Reference(r.Tag(ref.Identifier()))
	if _, digest := ref.(name.Digest); digest {
		target = r.Digest(ref.Identifier())
	}
	d, err := remote.Get(target, remote.WithContext(ctx), remote.WithTransport(r.transport))
	if err != nil {
		return nil, explain(ctx, Familiar(ref), err)
	}
	return d, nil
}

// fetch downloads one blob, and continues an earlier attempt.
func (c *Client) fetch(ctx context.Context, repo *repository, d v1.Descriptor, blobs *blob.Store, report func(Event)) error {
	draft, err := blobs.Begin(ctx, d.Digest, d.Size)
	if err != nil {
		return diskError(err)
	}
	if draft == nil {
		report(Event{Digest: d.Digest, Done: d.Size, Total: d.Size, Present: true})
		return nil
	}
	defer draft.Close()
	for try := 1; ; try++ {
		before := draft.At()
		err := repo.transfer(ctx, d, draft, report)
		if err == nil {
			break
		}
		if err = diskError(explain(ctx, d.Digest.String(), err)); !retryable(err) || ctx.Err() != nil || try >= c.o.Tries {
			return err
		}
		if draft.At() > before {
			try = 0 // there was progress
		}
		c.o.Log.Warn("the download of an image layer was interrupted; continuing", "blob", d.Digest.String(), "at", draft.At(), "err", err)
	}
	return diskError(draft.Commit())
}

// retryable reports whether another try with the same registry may succeed.
func retryable(err error) bool {
	return fault.KindOf(err) == fault.Unavailable && fault.CodeOf(err) != blob.CodeWrong
}

// transfer requests a blob from the draft's position on, and copies the data.
func (r *repository) transfer(ctx context.Context, d v1.Descriptor, draft *blob.Draft, report func(Event)) error {
	if draft.At() == d.Size {
		return nil // a crash happened just before the commit
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.blobURL(d.Digest), nil)
	if err != nil {
		return err
	}
	if draft.At() > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", draft.At()))
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := transport.CheckError(resp, http.StatusOK, http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable); err != nil {
		return err
	}
	// A server that ignores the requested position starts from the beginning.
	if resp.StatusCode != http.StatusPartialContent || !strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", draft.At())) {
		if err := draft.Reset(); err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return fault.New(fault.Unavailable, "registry_range", "the registry did not continue the blob at the requested position")
		}
	}
	if err := copyReporting(draft, resp.Body, d, report); err != nil {
		return err
	}
	if draft.At() < d.Size {
		return fault.Newf(fault.Unavailable, "registry_short", "the registry ended the blob %s after %d of %d bytes", d.Digest, draft.At(), d.Size)
	}
	return nil
}

// copyReporting copies and reports the progress of each piece.
func copyReporting(draft *blob.Draft, from io.Reader, d v1.Descriptor, report func(Event)) error {
	buffer := make([]byte, 256<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if _, err := draft.Write(buffer[:n]); err != nil {
				return err
			}
			report(Event{Digest: d.Digest, Done: draft.At(), Total: d.Size})
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// diskError classifies a full disk, because another try does not help.
func diskError(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fault.Wrap(err, fault.Exhausted, "disk_full", "the disk is full: the image could not be stored").WithHint("free some: crannog image prune")
	}
	return err
}
