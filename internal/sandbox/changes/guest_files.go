package changes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/changeset"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
)

// guestFiles reads a running sandbox's files through its guest. It redacts the data that it
// returns.
type guestFiles struct {
	source   Source
	row      sandbox.Row
	redactor *sandbox.Redactor
}

// Redactor implements changeset.Source.
func (b guestFiles) Redactor() changeset.Redactor {
	if m := b.redactor.Bytes(); m != nil {
		return m
	}
	return nil
}

// Tree implements changeset.Source.
func (b guestFiles) Tree(ctx context.Context, req changeset.TreeRequest) (io.ReadCloser, error) {
	return b.request(ctx, guest.PathTree, req)
}

// Pack implements changeset.Source.
func (b guestFiles) Pack(ctx context.Context, req changeset.PackRequest) (io.ReadCloser, error) {
	return b.request(ctx, guest.PathPack, req)
}

// maxErrorBytes limits the length of a guest's error message.
const maxErrorBytes = 4 << 10

// request sends a request to the guest and returns the body of its answer.
func (b guestFiles) request(ctx context.Context, path string, req any) (io.ReadCloser, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	res, err := withGuestTimeout(ctx, func(ctx context.Context) (*http.Response, error) {
		return b.source.Guest(ctx, b.row, http.MethodPost, path, bytes.NewReader(body))
	})
	if err != nil {
		if errors.Is(err, errGuestSilent) {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, sandbox.Canceled(context.Cause(ctx))
		}
		return nil, fault.Wrap(err, fault.Unavailable, "files_unavailable", "the sandbox does not list its files")
	}
	if res.StatusCode == http.StatusOK {
		return res.Body, nil
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBytes))
	return nil, fault.Wrap(errors.Join(fmt.Errorf("guest answered %d: %.200q", res.StatusCode, b.redactor.Record().Bytes(text)), err), fault.Unsupported, "files_unavailable",
		"the sandbox's guest belongs to an earlier version, which cannot list files")
}
