package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest/guestboot"
)

// withGuest returns an image that consists of base, the guest's program at target, and the content
// of directories that are empty in a container. The guest cannot be mounted, because a mount needs
// a file on the daemon's host. The new image is built once for each base image and guest.
func (e *Engine) withGuest(ctx context.Context, owner, base, target string) (string, error) {
	program, err := os.ReadFile(e.o.Guest)
	if err != nil {
		return "", fmt.Errorf("docker: the guest's program: %w", err)
	}
	mode := e.guestMode()
	sum := sha256.Sum256(fmt.Appendf(slices.Clone(program), "%s", target))
	if mode != guestMode {
		sum = sha256.Sum256(fmt.Appendf(slices.Clone(program), "%s %o", target, mode))
	}
	digest := hex.EncodeToString(sum[:])
	e.mu.Lock()
	known := e.derived[base+digest]
	e.mu.Unlock()
	if known != "" {
		if _, err := e.client.ImageInspect(ctx, known); err == nil {
			return known, nil
		}
	}
	unlock, err := e.lockImages(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	id, err := e.findDerivedImage(ctx, owner, base, digest)
	if err != nil {
		return "", err
	}
	if id == "" {
		if id, err = e.buildDerivedImage(ctx, owner, base, digest, guestFile{target, mode, program}); err != nil {
			return "", fmt.Errorf("put the guest into an image: %w", err)
		}
	}
	e.mu.Lock()
	e.derived[base+digest] = id
	e.mu.Unlock()
	return id, nil
}

// lockImages prevents other processes with this state directory from building the same image.
func (e *Engine) lockImages(ctx context.Context) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(e.dir, "images.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("docker: %w", err)
	}
	locked := make(chan error, 1)
	go func() { locked <- unix.Flock(int(file.Fd()), unix.LOCK_EX) }()
	select {
	case err = <-locked:
	case <-ctx.Done():
		go func() { <-locked; file.Close() }()
		return nil, context.Cause(ctx)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("docker: lock images: %w", err)
	}
	return func() { file.Close() }, nil
}

// findDerivedImage finds an image that was built before. It removes unused images with the guest of
// an earlier version.
func (e *Engine) findDerivedImage(ctx context.Context, owner, base, digest string) (found string, err error) {
	list, err := e.client.ImageList(ctx, client.ImageListOptions{Filters: filters(owner, "")})
	if err != nil {
		return "", err
	}
	for _, image := range list.Items {
		switch {
		case image.Labels[labelGuest] != digest:
			_, _ = e.client.ImageRemove(ctx, image.ID, client.ImageRemoveOptions{PruneChildren: true}) // it may be in use
		case image.Labels[labelBase] == base:
			found = image.ID
		}
	}
	return found, nil
}

// buildDerivedImage builds an image with the guest in a container that never runs.
func (e *Engine) buildDerivedImage(ctx context.Context, owner, base, digest string, guest guestFile) (_ string, err error) {
	name := containerName(owner, "") + "image"
	// The lock is held, so a container with this name was left by a process that died.
	if _, err := e.client.ContainerRemove(ctx, name, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}); err != nil && !cerrdefs.IsNotFound(err) {
		return "", err
	}
	created, err := e.client.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name:       name,
		Config:     &container.Config{Image: base, Entrypoint: []string{guest.path}, Cmd: []string{}, Labels: map[string]string{labelOwner: owner}, NetworkDisabled: true},
		HostConfig: &container.HostConfig{NetworkMode: "none"},
	})
	if err != nil {
		return "", err
	}
	defer func() {
		ctx, cancel := cleanupContext(ctx)
		defer cancel()
		_, removeErr := e.client.ContainerRemove(ctx, created.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		err = errors.Join(err, removeErr)
	}()
	accounts, err := e.accounts(ctx, created.ID)
	if err != nil {
		return "", err
	}
	if err := e.put(ctx, created.ID, "/", guestLayer(guest, accounts)); err != nil {
		return "", err
	}
	if err := e.copyEtc(ctx, created.ID); err != nil {
		return "", err
	}
	image, err := e.client.ContainerCommit(ctx, created.ID, client.ContainerCommitOptions{
		Config:  &container.Config{}, // Podman refuses a request without one
		Changes: []string{"LABEL " + labelBase + "=" + base, "LABEL " + labelGuest + "=" + digest},
	})
	return image.ID, err
}

// put unpacks a tar at a path of a container.
func (e *Engine) put(ctx context.Context, id, at string, content io.Reader) error {
	_, err := e.client.CopyToContainer(ctx, id, client.CopyToContainerOptions{DestinationPath: at, Content: content})
	return err
}

// readFile reads a small file of a container that does not run. For a missing file it returns "".
func (e *Engine) readFile(ctx context.Context, id, name string) (string, error) {
	copied, err := e.client.CopyFromContainer(ctx, id, client.CopyFromContainerOptions{SourcePath: name})
	if cerrdefs.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer copied.Content.Close()
	archive := tar.NewReader(copied.Content)
	if _, err := archive.Next(); err != nil {
		return "", err
	}
	const maxSize = 4 << 20
	text, err := io.ReadAll(io.LimitReader(archive, maxSize))
	return string(text), err
}

// accounts returns the files of a container's user database, with the sandbox's user added.
func (e *Engine) accounts(ctx context.Context, id string) (map[string]string, error) {
	files := map[string]string{}
	for _, f := range []struct{ name, root, user string }{
		{"etc/passwd", "root:x:0:0:root:/root:/bin/sh\n", fmt.Sprintf("user:x:%d:%[1]d:user:/home/user:/bin/sh\n", engine.UserID)},
		{"etc/group", "root:x:0:\n", fmt.Sprintf("user:x:%d:\n", engine.UserID)},
	} {
		text, err := e.readFile(ctx, id, "/"+f.name)
		if err != nil {
			return nil, err
		}
		if text == "" {
			text = f.root
		}
		if !strings.HasPrefix(text, "user:") && !strings.Contains(text, "\nuser:") {
			text = strings.TrimSuffix(text, "\n") + "\n" + f.user
		}
		files[f.name] = text
	}
	return files, nil
}

// guestFile is the guest's program in an image.
type guestFile struct {
	path    string
	mode    int64
	content []byte
}

// guestMode is the usual mode of the guest's program. It is executable but not readable, so that the
// kernel does not let programs of the same user trace it.
const guestMode = 0o711

// guestMode returns the mode of the guest's program. gVisor's kernel starts only programs that their
// user can read. There the guest is protected from its start by a call that it makes itself, and a
// program can trace only its own descendants.
func (e *Engine) guestMode() int64 {
	if e.userspaceKernel() {
		return 0o755
	}
	return guestMode
}

// guestLayer returns a tar of the files that are added to every image: the guest's program, and the
// directories on which a container mounts something.
func guestLayer(guest guestFile, files map[string]string) io.Reader {
	var buffer bytes.Buffer
	archive := tar.NewWriter(&buffer)
	add := func(h tar.Header, content []byte) {
		h.Size = int64(len(content))
		// Writing a tar to memory does not fail.
		_ = archive.WriteHeader(&h)
		_, _ = archive.Write(content)
	}
	dir := func(name string, mode int64, owner int) {
		add(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, Uid: owner, Gid: owner}, nil)
	}
	for _, name := range []string{"etc", "home", "run", "var", "proc", "sys", "dev"} {
		dir(name, 0o755, 0)
	}
	dir("tmp", 0o1777, 0)
	dir("var/tmp", 0o1777, 0)
	dir("home/user", 0o755, engine.UserID)
	dir("workspace", 0o755, engine.UserID)
	dir(".crannog", 0o755, 0)
	dir(guestboot.FillDir[1:], 0o755, 0)
	for parent := path.Dir(guest.path[1:]); parent != "." && parent != ".crannog"; parent = path.Dir(parent) {
		dir(parent, 0o755, 0)
	}
	add(tar.Header{Typeflag: tar.TypeReg, Name: guest.path[1:], Mode: guest.mode}, guest.content)
	for name, text := range files {
		add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, []byte(text))
	}
	_ = archive.Close()
	return &buffer
}

// copyEtc copies /etc of a container to the directory from which the guest fills /etc. Only files
// that every user may read are copied, because the guest is not root.
func (e *Engine) copyEtc(ctx context.Context, id string) error {
	copied, err := e.client.CopyFromContainer(ctx, id, client.CopyFromContainerOptions{SourcePath: "/etc"})
	if err != nil {
		return err
	}
	defer copied.Content.Close()
	return e.put(ctx, id, guestboot.FillDir, copied.Content)
}
