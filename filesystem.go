package crannog

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"path"
	"sort"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/gen/filesystempb"
	"github.com/crannog/crannog/internal/guest/gen/filesystempb/filesystempbconnect"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/guestwire"
)

// FS gives access to a sandbox's files. Names are as in package fs: relative to the root of the
// sandbox, such as "home/user/a.txt". It implements fs.StatFS, fs.ReadDirFS and fs.ReadFileFS.
type FS struct {
	sandbox *Sandbox
	ctx     context.Context
	user    string
}

var (
	_ fs.StatFS     = (*FS)(nil)
	_ fs.ReadDirFS  = (*FS)(nil)
	_ fs.ReadFileFS = (*FS)(nil)
)

// FS returns the sandbox's files as its default user sees them.
func (s *Sandbox) FS() *FS { return &FS{sandbox: s, ctx: context.Background()} }

// As returns the same files as another user sees them.
func (f *FS) As(user string) *FS { c := *f; c.user = user; return &c }

// WithContext returns the same files with a context for every operation.
func (f *FS) WithContext(ctx context.Context) *FS { c := *f; c.ctx = ctx; return &c }

// Entry is the type of the value that FileInfo.Sys returns.
type Entry struct {
	Owner, Group string
	// Link is the final target of a symbolic link; "" for other files.
	Link string
}

// Open opens a file for reading, or a directory.
func (f *FS) Open(name string) (fs.File, error) {
	info, err := f.stat("open", name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return &directory{fs: f, name: name, info: info}, nil
	}
	return &file{fs: f, name: name, info: info}, nil
}

// Stat describes a file. It follows symbolic links.
func (f *FS) Stat(name string) (fs.FileInfo, error) { return f.stat("stat", name) }

func (f *FS) stat(op, name string) (fs.FileInfo, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	resp, err := f.rpc().Stat(f.ctx, fsRequest(f, &filesystempb.StatRequest{Path: absolute(name)}))
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: fromConnect(err)}
	}
	return newInfo(resp.Msg.GetEntry(), path.Base(name)), nil
}

// ReadDir lists a directory in the order of names.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrInvalid}
	}
	resp, err := f.boundedRPC(guestwire.Listing).ListDir(f.ctx, fsRequest(f, &filesystempb.ListDirRequest{Path: absolute(name), Depth: 1}))
	if err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fromConnect(err)}
	}
	entries := make([]fs.DirEntry, 0, len(resp.Msg.GetEntries()))
	for _, e := range resp.Msg.GetEntries() {
		// With a slash in a name, a sandbox could direct its reader to another path.
		if e.GetName() == "" || e.GetName() == "." || e.GetName() == ".." || strings.Contains(e.GetName(), "/") {
			continue
		}
		entries = append(entries, fs.FileInfoToDirEntry(newInfo(e, e.GetName())))
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name() < entries[j].Name() })
	return entries, nil
}

// ReadFile reads a whole file.
func (f *FS) ReadFile(name string) ([]byte, error) {
	r, err := f.download(name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return data, nil
}

// download streams a file's content.
func (f *FS) download(name string) (io.ReadCloser, error) {
	if !fs.ValidPath(name) {
		return nil, fs.ErrInvalid
	}
	req, err := f.fileRequest(http.MethodGet, name, nil)
	if err != nil {
		return nil, err
	}
	resp, err := f.sandbox.client.http.Do(req)
	if err != nil {
		return nil, unreachableError(err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, responseError(resp)
	}
	return resp.Body, nil
}

// fileRequest addresses one file's content.
func (f *FS) fileRequest(method, name string, body io.Reader) (*http.Request, error) {
	query := url.Values{"path": {absolute(name)}}
	if f.user != "" {
		query.Set("username", f.user)
	}
	req, err := http.NewRequestWithContext(f.ctx, method, f.sandbox.client.base+"/files?"+query.Encode(), body)
	if err != nil {
		return nil, err
	}
	req.Header = f.sandbox.dataHeader(guestboot.Port)
	req.Header.Set("Accept-Encoding", "identity")
	return req, nil
}

// rpc returns a client for calls about one file.
func (f *FS) rpc() filesystempbconnect.FilesystemClient { return f.boundedRPC(guestwire.One) }

// boundedRPC returns a client that bounds the responses. The server itself reads them for MCP, and
// a hostile guest could fill its memory.
func (f *FS) boundedRPC(b guestwire.Bounds) filesystempbconnect.FilesystemClient {
	return guestwire.Filesystem(f.sandbox.client.http, f.sandbox.client.base, b)
}

// fsRequest returns a request to the guest's file service, for the user of f.
func fsRequest[T any](f *FS, msg *T) *connect.Request[T] {
	req := connect.NewRequest(msg)
	maps.Copy(req.Header(), f.sandbox.dataHeader(guestboot.Port))
	if f.user != "" {
		req.Header().Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(f.user+":")))
	}
	return req
}

// fromConnect returns an Error for the guest's error.
func fromConnect(err error) error {
	if _, isFault := errors.AsType[*fault.Error](err); isFault {
		return fromFault(err)
	}
	e, ok := errors.AsType[*connect.Error](err)
	if !ok || !connect.IsWireError(err) && connect.CodeOf(err) == connect.CodeCanceled {
		return err
	}
	kinds := map[connect.Code]error{
		connect.CodeNotFound: ErrNotFound, connect.CodeAlreadyExists: ErrExists,
		connect.CodePermissionDenied: ErrDenied, connect.CodeUnauthenticated: ErrUnauthenticated,
		connect.CodeInvalidArgument: ErrInvalid, connect.CodeFailedPrecondition: ErrConflict,
		connect.CodeResourceExhausted: ErrExhausted, connect.CodeUnavailable: ErrUnavailable,
		connect.CodeUnimplemented: ErrUnsupported, connect.CodeDeadlineExceeded: ErrTimeout,
	}
	k, ok := errors.AsType[kind](kinds[e.Code()])
	if !ok {
		k = kind(fault.Internal)
	}
	return &Error{Kind: string(k), Code: string(k), Message: e.Message()}
}

func absolute(name string) string { return path.Join("/", name) }

// info describes one file.
type info struct {
	name  string
	size  int64
	mode  fs.FileMode
	time  time.Time
	entry Entry
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return i.time }
func (i info) IsDir() bool        { return i.mode.IsDir() }
func (i info) Sys() any           { return &i.entry }

func newInfo(e *filesystempb.EntryInfo, name string) info {
	mode := fs.FileMode(e.GetMode()) & fs.ModePerm
	switch e.GetType() {
	case filesystempb.FileType_FILE_TYPE_DIRECTORY:
		mode |= fs.ModeDir
	case filesystempb.FileType_FILE_TYPE_SYMLINK:
		mode |= fs.ModeSymlink
	case filesystempb.FileType_FILE_TYPE_UNSPECIFIED:
		mode |= fs.ModeIrregular
	}
	return info{
		name: name, size: e.GetSize(), mode: mode, time: e.GetModifiedTime().AsTime(),
		entry: Entry{Owner: e.GetOwner(), Group: e.GetGroup(), Link: e.GetSymlinkTarget()},
	}
}
