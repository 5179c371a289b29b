package templatebuild

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/pattern"
	"github.com/crannog/crannog/internal/ids"
	"github.com/crannog/crannog/internal/sandbox"
)

// Limits of uploaded files: the bytes of one upload and of all uploads of one caller, how long
// unused files are kept, and how long a token for an upload is valid.
const (
	maxUpload    = 4 << 30
	maxUploads   = 16 << 30
	keepUnused   = 14 * 24 * time.Hour
	linkLifetime = time.Hour
)

// files stores the files of COPY steps: a tar for each hash. The client chooses the hash, which
// cannot be checked against the tar. So each caller has a directory of its own: with a wrong hash,
// a caller replaces only its own files.
type files struct {
	dir    string
	limits uploadLimits
	mu     sync.Mutex
	links  map[string]upload // by token
	used   map[string]int64  // bytes by directory, including unfinished uploads
}

// uploadLimits are the maximum bytes of one upload, and of all uploads of one caller.
type uploadLimits struct{ one, all int64 }

func openFiles(dir string, limits uploadLimits) *files {
	return &files{dir: dir, limits: limits, links: map[string]upload{}, used: map[string]int64{}}
}

// upload is a tar that may be sent once.
type upload struct {
	path    string
	expires time.Time
}

// hashForm matches a SHA-256 digest in hexadecimal.
var hashForm = pattern.New(`^[0-9a-f]{64}$`)

// owned returns the directory with the files of a caller.
func (f *files) owned(caller sandbox.Principal) string {
	sum := sha256.Sum256([]byte(caller.KeyID))
	return filepath.Join(f.dir, hex.EncodeToString(sum[:16]))
}

// path returns the file of a hash.
func (f *files) path(caller sandbox.Principal, hash string) (string, error) {
	if !hashForm.MatchString(hash) {
		return "", fault.Newf(fault.Invalid, "files_hash_invalid", "%.100q is not a SHA-256 digest in hexadecimal", hash)
	}
	return filepath.Join(f.owned(caller), hash), nil
}

// has reports whether the file of a hash exists, and marks it as used now.
func (f *files) has(path string) (bool, error) {
	now := time.Now()
	err := os.Chtimes(path, now, now)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Link reports whether the files of a hash were uploaded, and returns a token with which they may
// be uploaded. The token alone authorizes the upload: clients send no key with it.
func (s *Service) Link(caller sandbox.Principal, template, hash string) (present bool, token string, err error) {
	path, err := s.files.path(caller, hash)
	if err != nil {
		return false, "", err
	}
	s.mu.Lock()
	hasWaitingBuild := false
	for _, l := range s.live {
		hasWaitingBuild = hasWaitingBuild || l.record.Template == template && l.caller.KeyID == caller.KeyID && l.cancel == nil
	}
	s.mu.Unlock()
	if !hasWaitingBuild {
		return false, "", fault.Newf(fault.NotFound, "build_not_found", "no build of the template %.50q waits for files", template)
	}
	if present, err = s.files.has(path); err != nil {
		return false, "", err
	}
	return present, s.files.link(path), nil
}

// link creates a token for an upload, and forgets expired tokens.
func (f *files) link(path string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for token, u := range f.links {
		if time.Now().After(u.expires) {
			delete(f.links, token)
		}
	}
	token := ids.NewToken()
	f.links[token] = upload{path, time.Now().Add(linkLifetime)}
	return token
}

// Receive stores the tar of an upload. A token is valid once.
func (s *Service) Receive(token string, r io.Reader) error {
	f := s.files
	f.mu.Lock()
	u, ok := f.links[token]
	delete(f.links, token)
	f.mu.Unlock()
	if !ok || time.Now().After(u.expires) {
		return fault.New(fault.NotFound, "upload_not_found", "this link for an upload is not valid, or was used")
	}
	dir := filepath.Dir(u.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	// Existing files are counted before the upload changes anything, even if it is empty.
	if err := f.reserve(dir, 0); err != nil {
		return err
	}
	draft, err := os.CreateTemp(dir, draftPrefix)
	if err != nil {
		return err
	}
	defer os.Remove(draft.Name())
	w := &limitedWriter{draft: draft, files: f, dir: dir}
	defer func() { f.release(dir, w.size) }()
	_, err = io.Copy(w, r)
	if _, isLocal := errors.AsType[*fs.PathError](err); err != nil && !isLocal && fault.KindOf(err) != fault.Exhausted {
		err = fault.Wrap(err, fault.Invalid, "upload_broken", "the upload was interrupted")
	}
	if err := errors.Join(err, draft.Close()); err != nil {
		return err
	}
	return f.complete(w, u.path)
}

// limitedWriter writes an upload, and reserves its bytes before it writes them. So concurrent
// uploads share one limit.
type limitedWriter struct {
	draft *os.File
	files *files
	dir   string
	size  int64
}

func (w *limitedWriter) Write(data []byte) (int, error) {
	n := int64(len(data))
	if w.size+n > w.files.limits.one {
		return 0, w.files.tooLarge()
	}
	if err := w.files.reserve(w.dir, n); err != nil {
		return 0, err
	}
	w.size += n
	return w.draft.Write(data)
}

// tooLarge returns the error for an upload above the limits.
func (f *files) tooLarge() error {
	return fault.Newf(fault.Exhausted, "upload_large", "an upload has at most %d bytes, and the uploads of one caller %d", f.limits.one, f.limits.all).
		WithHint("leave files out with .dockerignore; uploads that no build has used for 14 days are removed")
}

// reserve counts bytes as used before they are written into a directory.
func (f *files) reserve(dir string, n int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	used, known := f.used[dir]
	if !known {
		var err error
		if used, err = sizeOf(dir); err != nil {
			return err
		}
	}
	if used+n > f.limits.all {
		f.used[dir] = used
		return f.tooLarge()
	}
	f.used[dir] = used + n
	return nil
}

// release takes back reserved bytes that were not stored.
func (f *files) release(dir string, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.used[dir] -= n
}

// complete renames an upload to its final name. If it replaces a file, the bytes of that file no
// longer count.
func (f *files) complete(w *limitedWriter, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var before int64
	if info, err := os.Lstat(path); err == nil {
		before = info.Size()
	}
	if err := os.Rename(w.draft.Name(), path); err != nil {
		return err
	}
	f.used[w.dir] -= before
	w.size = 0 // the file remains
	return nil
}

// draftPrefix begins the name of an upload that is not complete.
const draftPrefix = ".upload-"

// sizeOf returns the total size of the files in a directory.
func sizeOf(dir string) (sum int64, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			sum += info.Size()
		}
	}
	return sum, err
}

// prune removes uploads that no build has used for a long time, and incomplete ones.
func (f *files) prune() error {
	return filepath.WalkDir(f.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		age := time.Since(info.ModTime())
		if age < linkLifetime || age < keepUnused && !strings.HasPrefix(e.Name(), draftPrefix) {
			return nil
		}
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}
