package docker_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/docker"
	"github.com/crannog/crannog/internal/engine/docker/dockertest"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// Without a daemon, no method hangs: each returns a fault with a hint. List needs no daemon if
// nothing was ever created for the state directory.
func TestUnreachableDaemon(t *testing.T) {
	dir := t.TempDir()
	e, err := docker.New(docker.Options{StateDir: dir, Host: "unix://" + filepath.Join(dir, "none"), Guest: os.Args[0]})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if list, err := e.List(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("List before anything was created: %v %v", list, err)
	}
	refused := engine.Refusal(e.Probe(t.Context()))
	if fault.CodeOf(refused) != "docker_unreachable" || fault.HintOf(refused) == "" {
		t.Errorf("probe: %v", refused)
	}
	image := engine.Image{OCI: &engine.OCI{Ref: "x", Digest: "sha256:00"}, Guest: guestPath}
	err = e.Create(t.Context(), engine.Spec{ID: "box1", Image: image})
	if fault.CodeOf(err) != "docker_unreachable" || fault.HintOf(err) == "" {
		t.Errorf("create: %v", err)
	}
	if _, err := e.List(t.Context()); fault.CodeOf(err) != "docker_unreachable" {
		t.Errorf("List after Create: %v", err)
	}
}

// checkReady returns an error unless a sandbox's guest answers.
func checkReady(t testing.TB, e engine.Engine, id string) error {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return e.Dial(ctx, id, guestboot.Port)
	}}}
	request, err := http.NewRequestWithContext(hosttest.Context(t), http.MethodGet, "http://guest"+guest.PathReady, nil)
	if err != nil {
		return err
	}
	request.Header.Set(guest.ControlHeader, "control")
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
	return err
}

// After a daemon was killed and restarted, the engine finds its sandboxes. With live-restore they
// continue and can be reached again, otherwise they have ended. In both cases they can be removed
// completely.
func TestSandboxesAfterDaemonIsKilled(t *testing.T) {
	hosttest.Need(t, hosttest.Root, dockertest.Requirement, hosttest.Python, hosttest.Bash)
	settings := map[string]bool{"live-restore": true}
	if hosttest.Full() {
		settings["default"] = false
	}
	for name, live := range settings {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("/var/tmp", "dkr")
			if err != nil {
				t.Fatal(err)
			}
			d, err := dockertest.Start(dir, dockertest.Options{LiveRestore: live, HostMounts: true})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := d.Stop(); err != nil {
					t.Error(err)
				}
			})
			image, err := d.Import(t.Context(), "test:1")
			if err != nil {
				t.Fatal(err)
			}
			state := t.TempDir()
			e := opener(d, "")(t, state)
			spec := engine.Spec{ID: "box1", Hostname: "box", Image: engine.Image{OCI: &image, Guest: guestPath}, Boot: engine.Boot{
				Config: []byte(`{"sandbox_id":"box1","template_id":"t","hostname":"box","access_token":"access","control_token":"control","default_user":"user","memory_bytes":1,"milli_cpu":1,"disk_bytes":1,"pids":1}`),
			}}
			if err := e.Create(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := e.Remove(context.Background(), "box1"); err != nil {
					t.Error(err)
				}
			})
			if err := checkReady(t, e, "box1"); err != nil {
				t.Fatal(err)
			}
			type end struct {
				exit engine.Exit
				err  error
			}
			waited := make(chan end, 1)
			go func() {
				exit, err := e.Wait(context.Background(), "box1")
				waited <- end{exit, err}
			}()
			d.Kill()
			if err := checkReady(t, e, "box1"); err == nil || !strings.Contains(err.Error(), "does not answer") {
				t.Errorf("with a dead daemon: %v", err)
			}
			if err := d.Run(); err != nil {
				t.Fatal(err)
			}
			if live {
				hosttest.EventuallyNoError(t, func() error { return checkReady(t, e, "box1") })
				list, err := e.List(t.Context())
				if err != nil || len(list) != 1 || list[0].State != engine.Running {
					t.Errorf("list: %+v %v", list, err)
				}
				if err := e.Remove(t.Context(), "box1"); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case end := <-waited:
				// A wait that begins after the removal returns that the sandbox is unknown.
				if fault.KindOf(end.err) != fault.NotFound && (end.err != nil || end.exit.Reason != engine.ReasonKilled) {
					t.Errorf("Wait returned %+v, want killed or not found", end)
				}
			case <-hosttest.Late():
				t.Fatal("the wait does not end")
			}
			if err := e.Remove(t.Context(), "box1"); err != nil {
				t.Fatal(err)
			}
			for what, n := range residue(d)(t, state) {
				if n != 0 {
					t.Errorf("%d %s are left", n, what)
				}
			}
		})
	}
}
