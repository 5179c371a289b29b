package build_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// killedText is a build with parallel stages, a cache mount, a secret and output.
const killedText = `FROM base:1 AS one
RUN echo one >/one
FROM base:1 AS two
RUN --mount=type=cache,target=/cache --mount=type=secret,id=token echo two >/two && echo x >>/cache/x
FROM one
COPY --from=two /two /two
WORKDIR /work
RUN echo three >/three
`

const killedSecret = "secret-of-the-killed-build"

func killedRequest() api.CreateBuild {
	return api.CreateBuild{Tag: "killed:1", Dockerfile: killedText, NoCache: true, Secrets: map[string][]byte{"token": []byte(killedSecret)}, Access: &api.Access{Net: "none"}}
}

// startWithBase starts a server on a state directory, with base:1 if it is new.
func startWithBase(t *testing.T, state, base string) (*servetest.Server, *crannog.Client) {
	t.Helper()
	s := servetest.Start(t, program, state)
	client := s.Local(t)
	if base != "" {
		if _, err := client.ImportImage(t.Context(), api.ImportImage{Path: base}, nil); err != nil {
			t.Fatal(err)
		}
	}
	return s, client
}

// requireClean checks that no build has left sandboxes, processes, mounts or files.
func requireClean(t *testing.T, state string, client *crannog.Client) {
	t.Helper()
	hosttest.EventuallyNoError(t, func() error {
		list, err := client.List(t.Context(), crannog.ListOptions{})
		if err != nil || len(list) != 0 {
			return fmt.Errorf("got %d sandboxes, error %w", len(list), err)
		}
		return nil
	})
	servetest.NothingLeft(t, state)
	for _, dir := range []string{"builds/work", "builds/templates/work"} {
		entries, err := os.ReadDir(filepath.Join(state, dir))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if len(entries) != 0 {
			t.Errorf("%s has %d entries, want none: %v", dir, len(entries), entries)
		}
	}
	if found := hosttest.Holding(t, state, killedSecret); len(found) != 0 {
		t.Errorf("the secret is in %v", found)
	}
}

// TestServerKilledAtEachStepOfBuild kills the server with SIGKILL at each event of a build. The
// next server marks the build as failed, and has either the complete image or none.
func TestServerKilledAtEachStepOfBuild(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Program("busybox"))
	if !hosttest.Full() {
		t.Skip("make test-build runs this test")
	}
	base := filepath.Join(t.TempDir(), "base.tar")
	writeBase(t, base)
	state := hosttest.ShortDir(t)
	s, client := startWithBase(t, state, base)
	// The control: without a kill, the build works and leaves nothing.
	events := 0
	img, err := client.Build(t.Context(), killedRequest(), nil, nil, func(api.BuildEvent) { events++ })
	if err != nil {
		t.Fatal(err)
	}
	requireClean(t, state, client)
	for n := 1; n <= events; n++ {
		if _, err := client.RemoveImage(t.Context(), "killed:1"); err != nil {
			t.Fatalf("RemoveImage: %v", err)
		}
		seen := 0
		var build api.Build
		_, err := client.Build(t.Context(), killedRequest(), nil, func(b api.Build) { build = b }, func(api.BuildEvent) {
			if seen++; seen == n {
				s.Kill()
			}
		})
		s, client = startWithBase(t, state, "")
		builds, listErr := client.Builds(t.Context())
		at := slices.IndexFunc(builds, func(b api.Build) bool { return b.ID == build.ID })
		if listErr != nil || at < 0 {
			t.Fatalf("killed at event %d: the build %q is not listed, error %v", n, build.ID, listErr)
		}
		got := builds[at]
		if got.State != "failed" && got.State != "done" || got.State == "failed" && got.Code != "build_interrupted" {
			t.Errorf("killed at event %d (client: %v): got the state %s with %s, want failed with build_interrupted, or done", n, err, got.State, got.Code)
		}
		requireClean(t, state, client)
		found, inspectErr := client.InspectImage(t.Context(), "killed:1")
		if got.State == "done" && (inspectErr != nil || found.Digest != got.Digest) {
			t.Errorf("killed at event %d: the build is done, and the image is %s, error %v", n, found.Digest, inspectErr)
		}
		if inspectErr == nil {
			if err := client.ExportImage(t.Context(), "killed:1", "docker", io.Discard); err != nil {
				t.Errorf("killed at event %d: the image is not complete: %v", n, err)
			}
		}
		// The next build works, also with what the killed one has left in the cache.
		req := killedRequest()
		req.NoCache = n%2 == 0
		again, err := client.Build(t.Context(), req, nil, nil, nil)
		if err != nil || again.Config == nil || img.Config == nil {
			t.Fatalf("build after a kill at event %d: %v", n, err)
		}
		requireClean(t, state, client)
	}
}

// TestServerKilledInCommitAndPrune kills the server while it creates an image of a sandbox, and
// while it prunes images. What is left is complete.
func TestServerKilledInCommitAndPrune(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Program("busybox"))
	if !hosttest.Full() {
		t.Skip("make test-build runs this test")
	}
	base := filepath.Join(t.TempDir(), "base.tar")
	writeBase(t, base)
	state := hosttest.ShortDir(t)
	s, client := startWithBase(t, state, base)
	commit := func(ctx context.Context, tag string) error {
		sb, err := client.Create(ctx, crannog.Image("base:1"), crannog.Timeout(time.Hour))
		if err != nil {
			return err
		}
		defer func() { _ = sb.Kill(context.WithoutCancel(ctx)) }()
		if out, err := sb.Command("/bin/sh", "-c", "dd if=/dev/urandom of=/big bs=1048576 count=8").CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		_, err = sb.Commit(ctx, tag)
		return err
	}
	if err := commit(t.Context(), "control:1"); err != nil { // the control
		t.Fatal(err)
	}
	const most = 12
	for n := 1; n <= most; n++ {
		tag := fmt.Sprintf("commit-%d:1", n)
		sb, err := client.Create(t.Context(), crannog.Image("base:1"), crannog.Timeout(time.Hour))
		must(t, err)
		out, err := sb.Command("/bin/sh", "-c", "dd if=/dev/urandom of=/big bs=1048576 count=8").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		kill := killAtChange(t, state, n, s)
		_, commitErr := sb.Commit(t.Context(), tag)
		kill()
		hosttest.EventuallyNoError(t, func() error { return gone(s.PID()) })
		s, client = startWithBase(t, state, "")
		if _, err := client.InspectImage(t.Context(), tag); err == nil {
			if err := client.ExportImage(t.Context(), tag, "docker", io.Discard); err != nil {
				t.Errorf("killed at change %d: the image is not complete: %v", n, err)
			}
		} else if commitErr == nil {
			t.Errorf("killed at change %d: Commit succeeded, and the image is missing: %v", n, err)
		}
		list, err := client.List(t.Context(), crannog.ListOptions{})
		must(t, err)
		for _, one := range list {
			left, err := client.Get(t.Context(), one.ID)
			must(t, err)
			must(t, left.Kill(t.Context()))
		}
		requireClean(t, state, client)

		_, _ = client.RemoveImage(t.Context(), tag) // it exists only if the commit was complete
		kill = killAtChange(t, state, n, s)
		_, _ = client.PruneImages(t.Context()) // it fails if the server is killed first
		kill()
		hosttest.EventuallyNoError(t, func() error { return gone(s.PID()) })
		s, client = startWithBase(t, state, "")
		for _, kept := range []string{"base:1", "control:1"} {
			if err := client.ExportImage(t.Context(), kept, "docker", io.Discard); err != nil {
				t.Errorf("killed in prune at change %d: %s is not complete: %v", n, kept, err)
			}
		}
		requireClean(t, state, client)
	}
}

// killAtChange kills the server at the n-th change of a file in its image store, or when the
// returned function is called.
func killAtChange(t *testing.T, state string, n int, s *servetest.Server) (kill func()) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	must(t, err)
	watched := 0
	must(t, filepath.WalkDir(filepath.Join(state, "oci"), func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() || watched > 200 {
			return err
		}
		watched++
		_, err = unix.InotifyAddWatch(fd, path, unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_DELETE|unix.IN_CLOSE_WRITE)
		return err
	}))
	f := os.NewFile(uintptr(fd), "inotify")
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 64<<10)
		for seen := 0; seen < n; {
			m, err := f.Read(buf)
			if err != nil {
				return
			}
			for at := 0; at+unix.SizeofInotifyEvent <= m; seen++ {
				at += unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[at+12:]))
			}
		}
		_ = unix.Kill(s.PID(), unix.SIGKILL) // s.Kill waits for it
	}()
	return func() {
		f.Close()
		<-done
		s.Kill() // if there were fewer changes
	}
}

// gone reports whether a process has ended.
func gone(pid int) error {
	if err := unix.Kill(pid, 0); err == nil {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if !strings.Contains(string(stat), ") Z ") {
			return fmt.Errorf("the process %d still runs", pid)
		}
	}
	return nil
}

// TestDiskFullInBuild fills the disk of the state directory in each kind of step. The build fails
// with a reason, leaves nothing, and the server builds again once there is room.
func TestDiskFullInBuild(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Program("busybox"))
	if !hosttest.Full() {
		t.Skip("make test-build runs this test")
	}
	base := filepath.Join(t.TempDir(), "base.tar")
	writeBase(t, base)
	disk := hosttest.ShortDir(t)
	const room = 400 << 20
	must(t, unix.Mount("tmpfs", disk, "tmpfs", 0, fmt.Sprintf("size=%d,mode=700", room)))
	t.Cleanup(func() { must(t, unix.Unmount(disk, 0)) })
	state := filepath.Join(disk, "s")
	s, client := startWithBase(t, state, base)
	defer func() { s.Stop(t) }()
	build := func(tag, text string) error {
		_, err := client.Build(t.Context(), api.CreateBuild{Tag: tag, Dockerfile: text, NoCache: true, Access: &api.Access{Net: "none"}}, nil, nil, nil)
		return err
	}
	const small = "FROM base:1\nRUN dd if=/dev/urandom of=/f bs=1048576 count=4\n"
	must(t, build("control:1", small)) // the control
	free := func() uint64 {
		var f unix.Statfs_t
		must(t, unix.Statfs(state, &f))
		return f.Bavail * uint64(f.Bsize)
	}
	before := free()
	for what, text := range map[string]string{
		"a command":  "FROM base:1\nRUN dd if=/dev/urandom of=/f bs=1048576 count=600\n",
		"many steps": "FROM base:1\n" + strings.Repeat("RUN dd if=/dev/urandom of=/f$RANDOM bs=1048576 count=60\n", 8),
	} {
		err := build("full:1", text)
		var known *crannog.Error
		if !errors.As(err, &known) || known.Code == "" {
			t.Errorf("%s: got %v, want an error with a code", what, err)
		}
		t.Logf("%s: %v", what, err)
		if _, err := client.InspectImage(t.Context(), "full:1"); err == nil {
			t.Errorf("%s: there is an image", what)
		}
		builds, err := client.Builds(t.Context())
		if err != nil || slices.ContainsFunc(builds, func(b api.Build) bool { return b.State == "running" || b.State == "waiting" }) {
			t.Errorf("%s: the builds are %+v, error %v, want none that runs", what, builds, err)
		}
		requireClean(t, state, client)
		if _, err := client.PruneImages(t.Context()); err != nil {
			t.Errorf("%s: PruneImages: %v", what, err)
		}
	}
	must(t, build("after:1", small))
	// Layers of complete steps stay in the cache.
	t.Logf("free: %d MiB before, %d MiB after", before>>20, free()>>20)
}
