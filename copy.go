package crannog

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"path"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/copytree"
	"github.com/crannog/crannog/internal/guest/guestboot"
)

// CopyOptions configure a copy. The zero value copies a symbolic link as a link and makes the user
// the owner of written files.
type CopyOptions struct {
	// Follow copies the target of a source that is a symbolic link. Links below the source are
	// still copied as links.
	Follow bool
	// KeepOwners keeps the numeric user and group of each file. Only root can.
	KeepOwners bool
}

// Copied describes a finished copy.
type Copied struct {
	Path        string // path of the copy
	Files       int
	Directories int
	Links       int   // symbolic links
	Bytes       int64 // of the files, with their holes
	LeftOut     int   // sockets, devices and named pipes
	// Outward are links that were omitted because they point out of the copy. LeftOut counts them
	// too.
	Outward int
}

func newCopied(path string, s copytree.Summary) Copied {
	return Copied{Path: path, Files: s.Files, Directories: s.Directories, Links: s.Links, Bytes: s.Bytes, LeftOut: s.LeftOut, Outward: s.Outward}
}

// CopyIn copies a file or a directory of the host into the sandbox: content, permissions, times,
// symbolic links and holes. Unlike other names of an FS, those of a copy are absolute paths inside,
// and may have any bytes. If to is an existing directory, the copy is created in it, under the
// source's own name. If the FS has no user (see As), the files belong to the sandbox's default
// user, and root writes to places where that user may not.
func (f *FS) CopyIn(from, to string, o CopyOptions) (Copied, error) {
	source, err := copytree.Open(from, o.Follow)
	if err != nil {
		return Copied{}, err
	}
	defer source.Close()
	in, out := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := source.Send(f.ctx, out)
		_ = out.CloseWithError(err) // never fails
		sent <- err
	}()
	sum, err := f.copyIn(in, to, o)
	_ = in.CloseWithError(err) // never fails; the sender must not wait
	// An error of the source explains the server's error. A closed pipe does not: it only means
	// that the server stopped reading.
	if sendErr := <-sent; sendErr != nil && err != nil && !errors.Is(sendErr, io.ErrClosedPipe) {
		return Copied{}, sendErr
	}
	return sum, err
}

// CopyOut copies a file or a directory of the sandbox to the host. The data of a sandbox is not
// trusted: CopyOut writes only below to, omits symbolic links that point out of the copy, and
// copies neither owners nor set-user-ID bits. A copy that would fill the disk, or that is
// interrupted, leaves nothing.
func (f *FS) CopyOut(from, to string, o CopyOptions) (Copied, error) {
	body, err := f.copyOut(from, o)
	if err != nil {
		return Copied{}, err
	}
	defer body.Close()
	first, frames, err := copytree.First(copytree.NewReader(body))
	if err != nil {
		return Copied{}, copyError(err)
	}
	place, err := copytree.Locate(to, first, false)
	if err != nil {
		return Copied{}, err
	}
	defer place.Close()
	stage, err := copytree.Begin(place)
	if err != nil {
		return Copied{}, err
	}
	defer stage.Close()
	sum, err := stage.Receive(f.ctx, frames, copytree.Options{Confine: true, KeepOwners: o.KeepOwners})
	return newCopied(place.Path(), sum), copyError(err)
}

// CopyTo copies a file or a directory of the sandbox into another one.
func (f *FS) CopyTo(from string, other *FS, to string, o CopyOptions) (Copied, error) {
	body, err := f.copyOut(from, o)
	if err != nil {
		return Copied{}, err
	}
	defer body.Close()
	return other.copyIn(body, to, o)
}

// copyError returns an Error for a failed copy.
func copyError(err error) error {
	if err == nil {
		return nil
	}
	return fromFault(err)
}

func (f *FS) copyOut(from string, o CopyOptions) (io.ReadCloser, error) {
	query := url.Values{"path": {insidePath(from)}}
	if o.Follow {
		query.Set("follow", "1")
	}
	resp, err := f.copyCall(http.MethodGet, query, nil)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

func (f *FS) copyIn(stream io.Reader, to string, o CopyOptions) (Copied, error) {
	query := url.Values{"path": {insidePath(to)}}
	if o.KeepOwners {
		query.Set("owners", "keep")
	}
	resp, err := f.copyCall(http.MethodPost, query, stream)
	if err != nil {
		return Copied{}, err
	}
	defer resp.Body.Close()
	var result struct {
		Path []byte `json:"path"`
		copytree.Summary
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxErrorBody)).Decode(&result); err != nil {
		return Copied{}, unreachableError(err)
	}
	return newCopied(string(result.Path), result.Summary), nil
}

// insidePath makes a path absolute. It keeps a slash at the end, which means that the path is a
// directory.
func insidePath(name string) string {
	if path.IsAbs(name) {
		return name
	}
	return "/" + name
}

// copyCall sends a request to the guest's copy service.
func (f *FS) copyCall(method string, query url.Values, body io.Reader) (*http.Response, error) {
	if f.user != "" {
		query.Set("username", f.user)
	}
	req, err := http.NewRequestWithContext(f.ctx, method, f.sandbox.client.base+"/copy?"+query.Encode(), body)
	if err != nil {
		return nil, err
	}
	req.Header = f.sandbox.dataHeader(guestboot.Port)
	req.Header.Set("Accept-Encoding", "identity")
	if body != nil {
		req.Header.Set("Content-Type", copytree.ContentType)
	}
	resp, err := f.sandbox.client.http.Do(req)
	if err != nil {
		return nil, unreachableError(err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	err = responseError(resp)
	if e, ok := errors.AsType[*Error](err); ok && resp.StatusCode == http.StatusNotFound && e.Message == "not found" {
		return nil, fromFault(fault.New(fault.Unsupported, "guest_too_old", "the sandbox was started by an earlier version, which does not support this copy").
			WithHint("start a new sandbox"))
	}
	return nil, err
}
