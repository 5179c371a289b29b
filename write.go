package crannog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"

	"github.com/crannog/crannog/internal/guest/gen/filesystempb"
)

// maxChmodError bounds the stored beginning and end of chmod's error output, in bytes each.
const maxChmodError = 4 << 10

// newFileMode is the mode that the file service gives a new file.
const newFileMode = 0o644

// WriteFile writes a file, and creates the directories above it.
func (f *FS) WriteFile(name string, data []byte, perm fs.FileMode) error {
	return f.Upload(name, bytes.NewReader(data), perm)
}

// Upload writes a file from a reader, without holding it in memory, and creates the directories
// above it.
func (f *FS) Upload(name string, r io.Reader, perm fs.FileMode) error {
	if !fs.ValidPath(name) || name == "." {
		return &fs.PathError{Op: "write", Path: name, Err: fs.ErrInvalid}
	}
	if err := f.upload(name, r); err != nil {
		return &fs.PathError{Op: "write", Path: name, Err: err}
	}
	if perm&fs.ModePerm == newFileMode {
		return nil
	}
	return f.Chmod(perm, name)
}

func (f *FS) upload(name string, r io.Reader) error {
	req, err := f.fileRequest(http.MethodPost, name, r)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	resp, err := f.sandbox.client.http.Do(req)
	if err != nil {
		return unreachableError(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return responseError(resp)
	}
	return nil
}

// Chmod changes permissions, by running the sandbox's own chmod, because the file service has no
// such call.
func (f *FS) Chmod(perm fs.FileMode, names ...string) error {
	args := []string{fmt.Sprintf("%#o", perm&fs.ModePerm), "--"}
	for _, name := range names {
		if !fs.ValidPath(name) {
			return &fs.PathError{Op: "chmod", Path: name, Err: fs.ErrInvalid}
		}
		args = append(args, absolute(name))
	}
	cmd := f.sandbox.CommandContext(f.ctx, "chmod", args...)
	cmd.User = f.user
	// A program with root inside may have replaced chmod, so its output must not fill the client's
	// memory.
	stderr := &headTail{limit: maxChmodError}
	cmd.Stderr = stderr
	if err := cmd.Run(); err != nil {
		if _, ok := errors.AsType[*ExitError](err); ok {
			return fmt.Errorf("chmod: %s", bytes.TrimSpace(stderr.bytes()))
		}
		return fmt.Errorf("chmod: %w", err)
	}
	return nil
}

// MkdirAll creates a directory and those above it.
func (f *FS) MkdirAll(name string) error {
	if !fs.ValidPath(name) {
		return &fs.PathError{Op: "mkdir", Path: name, Err: fs.ErrInvalid}
	}
	_, err := f.rpc().MakeDir(f.ctx, fsRequest(f, &filesystempb.MakeDirRequest{Path: absolute(name)}))
	if err = fromConnect(err); err != nil && !errors.Is(err, ErrExists) {
		return &fs.PathError{Op: "mkdir", Path: name, Err: err}
	}
	return nil
}

// Rename moves a file or directory, and creates the directories above its new path.
func (f *FS) Rename(from, to string) error {
	for _, name := range []string{from, to} {
		if !fs.ValidPath(name) || name == "." {
			return &fs.PathError{Op: "rename", Path: name, Err: fs.ErrInvalid}
		}
	}
	_, err := f.rpc().Move(f.ctx, fsRequest(f, &filesystempb.MoveRequest{Source: absolute(from), Destination: absolute(to)}))
	if err != nil {
		return &fs.PathError{Op: "rename", Path: from, Err: fromConnect(err)}
	}
	return nil
}

// Remove removes a file or an empty directory.
func (f *FS) Remove(name string) error {
	info, err := f.stat("remove", name)
	if err != nil {
		return err
	}
	if info.IsDir() && info.Sys().(*Entry).Link == "" {
		entries, err := f.ReadDir(name)
		if err != nil {
			return err
		}
		if len(entries) > 0 {
			return &fs.PathError{Op: "remove", Path: name, Err: errors.New("directory not empty")}
		}
	}
	return f.RemoveAll(name)
}

// RemoveAll removes a file, or a directory with everything in it. It succeeds if there is none.
func (f *FS) RemoveAll(name string) error {
	if !fs.ValidPath(name) || name == "." {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrInvalid}
	}
	_, err := f.rpc().Remove(f.ctx, fsRequest(f, &filesystempb.RemoveRequest{Path: absolute(name)}))
	if err != nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fromConnect(err)}
	}
	return nil
}
