package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/crannog/crannog/internal/engine/docker/dockertest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// hostKey is the key of a script's dockerHost among the script's values.
type hostKey struct{}

// TestDockerScripts runs the scripts with a Docker daemon that the test starts (P58).
func TestDockerScripts(t *testing.T) { runDockerScripts(t, "docker") }

// TestLongDockerScripts is TestDockerScripts for states on disk and the warm pool (P82, P83).
func TestLongDockerScripts(t *testing.T) {
	if !hosttest.Full() {
		t.Skip("part of make test-docker, because it creates twenty containers; make test runs a rule about saved files")
	}
	runDockerScripts(t, "docker-full")
}

func runDockerScripts(t *testing.T, dir string) {
	t.Helper()
	hosttest.Need(t, hosttest.Root, dockertest.Requirement, hosttest.Python, hosttest.Bash)
	shared := startDocker(t, dockertest.Options{})
	testscript.Run(t, testscript.Params{
		Dir:             filepath.Join("testdata", dir),
		ContinueOnError: true,
		Setup: func(env *testscript.Env) error {
			if err := setup(env); err != nil {
				return err
			}
			env.Values[hostKey{}] = &dockerHost{t, shared}
			env.Setenv("CRANNOG_DOCKER_HOST", shared.Host)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve": serve, "stopserver": stopServer, "makeimage": makeImage, "dockerd": dockerd, "dockerload": dockerLoad, "dockerleft": dockerLeft,
		},
		RequireUniqueNames: true,
	})
}

// dockerHost is the Docker daemon of one script, with the test that starts and stops daemons.
type dockerHost struct {
	t      *testing.T
	daemon *dockertest.Daemon
}

func startDocker(t *testing.T, o dockertest.Options) *dockertest.Daemon {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "dkr")
	if err != nil {
		t.Fatal(err)
	}
	d, err := dockertest.Start(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// dockerd starts a daemon for this script alone, whose containers outlive it. It can also kill the
// daemon and start it again: dockerd [kill|run].
func dockerd(ts *testscript.TestScript, neg bool, args []string) {
	h := ts.Value(hostKey{}).(*dockerHost)
	switch action := strings.Join(args, " "); {
	case neg:
		ts.Fatalf("usage: dockerd [kill|run]")
	case action == "":
		h.daemon = startDocker(h.t, dockertest.Options{LiveRestore: true, HostMounts: true})
		ts.Setenv("CRANNOG_DOCKER_HOST", h.daemon.Host)
	case action == "kill":
		h.daemon.Kill()
	case action == "run":
		ts.Check(h.daemon.Run())
	default:
		ts.Fatalf("usage: dockerd [kill|run]")
	}
}

// dockerLoad loads an archive into the daemon, as docker load does: dockerload FILE.
func dockerLoad(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: dockerload FILE")
	}
	c, err := ts.Value(hostKey{}).(*dockerHost).daemon.Client()
	ts.Check(err)
	defer c.Close()
	f, err := os.Open(ts.MkAbs(args[0]))
	ts.Check(err)
	defer f.Close()
	answer, err := c.ImageLoad(context.Background(), f)
	ts.Check(err)
	_, err = io.Copy(io.Discard, answer)
	ts.Check(err)
	ts.Check(answer.Close())
}

// dockerLeft fails if the daemon still has containers, volumes or networks of this script's
// sandboxes: dockerleft.
func dockerLeft(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: dockerleft")
	}
	counts, err := ts.Value(hostKey{}).(*dockerHost).daemon.CountObjects(context.Background(), ts.Getenv("CRANNOG_STATE"))
	ts.Check(err)
	for kind, n := range counts {
		if n > 0 {
			ts.Fatalf("the daemon still has %d %s", n, kind)
		}
	}
}
