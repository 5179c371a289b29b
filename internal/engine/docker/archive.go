package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/moby/moby/client"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/docker/inside"
	"github.com/crannog/crannog/internal/engine/linux/holes"
	"github.com/crannog/crannog/internal/fault"
)

// namesName is the file with the paths of the files that were copied into a sandbox, in its
// directory on this host.
const namesName = "workspace-files"

// createNames creates the file for the paths of the files that are copied into a sandbox.
func (e *Engine) createNames(id string) (*os.File, error) {
	if err := os.MkdirAll(e.socketDir(id), 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(e.socketDir(id), namesName), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
}

// openNames opens that file. A sandbox without a workspace has none, which reads as empty. If the
// sandbox has a workspace and is of an earlier version, the removed files are not known, and an
// archive would bring them back.
func (e *Engine) openNames(ctx context.Context, id string) (io.ReadCloser, error) {
	f, err := os.Open(filepath.Join(e.socketDir(id), namesName))
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	owner, err := e.owner(false)
	if err != nil {
		return nil, err
	}
	volumes, err := e.volumes(ctx, owner, id)
	if err == nil && len(volumes) > 0 {
		err = fault.New(fault.Unsupported, "state_unsupported", "the sandbox was created by an earlier version, which did not store the names of its workspace's files").
			WithHint("create a new sandbox; this one continues until its end")
	}
	return io.NopCloser(eof{}), err
}

// eof reads as empty.
type eof struct{}

// Read implements io.Reader.
func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// Archive implements engine.Archiver. A program of the guest reads the writable directories from
// inside: they are mounts, which neither docker commit nor docker cp includes, and the daemon may be
// on another host. The sandbox keeps running, so a file that is written during that time may be
// incomplete in the archive.
func (e *Engine) Archive(ctx context.Context, id string, w io.Writer) error {
	c, err := e.running(ctx, id)
	if err != nil {
		return err
	}
	if c.paused {
		return engine.Frozen(id)
	}
	names, err := e.openNames(ctx, id)
	if err != nil {
		return e.explain("read the files of sandbox "+id, err)
	}
	defer names.Close()
	err = holes.Through(w, func(in *os.File) error { return e.archive(ctx, id, c, names, in) })
	if failed := context.Cause(ctx); failed != nil {
		return failed
	}
	if _, ofWriter := errors.AsType[*holes.CopyError](err); ofWriter {
		return err
	}
	return e.explain("read the files of sandbox "+id, err)
}

// archive runs the program inside and copies its output.
func (e *Engine) archive(ctx context.Context, id string, c runningContainer, names io.Reader, w io.Writer) error {
	exec, err := e.client.ExecCreate(ctx, c.id, client.ExecCreateOptions{
		AttachStdin: true, AttachStdout: true, AttachStderr: true, Cmd: inside.Arguments(c.guest, append(writableDirs(), workspaceDir)),
	})
	if err != nil {
		return err
	}
	attached, err := e.client.ExecAttach(ctx, exec.ID, client.ExecAttachOptions{})
	if err != nil {
		return err
	}
	conn := newExecConnection(attached.HijackedResponse)
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	// The program reads all names before it writes anything.
	if _, err := io.Copy(conn.Conn, names); err != nil {
		return err
	}
	if err := conn.hijacked.CloseWrite(); err != nil {
		return err
	}
	// The program bounds the size itself. The names and attributes of the files add to it.
	n, err := io.Copy(w, io.LimitReader(conn, 2*inside.MaxSize))
	if err != nil {
		return err
	}
	status := inside.StatusTooLarge
	if n < 2*inside.MaxSize {
		result, err := e.client.ExecInspect(ctx, exec.ID, client.ExecInspectOptions{})
		if err != nil {
			return err
		}
		if result.Running {
			return errors.New("the daemon cut off the files")
		}
		if result.ExitCode == 0 {
			return nil
		}
		status = result.ExitCode
	}
	return e.archiveFault(ctx, id, status, conn.errors())
}

// archiveFault returns the error for the exit status of the program inside.
func (e *Engine) archiveFault(ctx context.Context, id string, status int, message string) error {
	switch status {
	case inside.StatusTooLarge:
		return fault.Newf(fault.Exhausted, "file_too_large", "the files of sandbox %q are larger than %d GiB, holes included", id, int64(inside.MaxSize)>>30).
			WithHint("remove files with large holes")
	case inside.StatusUnreadable:
		return fault.Newf(fault.Conflict, "files_unreadable", "files of the sandbox cannot be read by its user: %s", message).
			WithHint("make them readable in the sandbox with chmod u+rwX")
	}
	if _, err := e.running(ctx, id); err != nil {
		return err // the sandbox has ended
	}
	return fmt.Errorf("the program in the container ended with status %d: %s", status, message)
}

// Extract implements engine.Archiver. This engine saves no memory, so there is nothing to extract.
func (e *Engine) Extract(_ context.Context, spec engine.Spec, _ string, _ io.Writer) error {
	return fault.Newf(fault.Unsupported, "state_unsupported", "the engine docker saves no memory, so it has no saved files of sandbox %q", spec.ID)
}
