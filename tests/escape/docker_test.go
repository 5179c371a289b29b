package escape_test

import (
	"os"
	"testing"

	"github.com/crannog/crannog/internal/engine/docker/dockertest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// startDocker starts a Docker daemon with an image, for the servers of this test.
func startDocker(t *testing.T, image string) {
	t.Helper()
	hosttest.Need(t, dockertest.Requirement)
	dir, err := os.MkdirTemp("/var/tmp", "dkr")
	if err != nil {
		t.Fatal(err)
	}
	daemon, err := dockertest.Start(dir, dockertest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := daemon.Stop(); err != nil {
			t.Errorf("stop dockerd: %v", err)
		}
	})
	if _, err := daemon.Import(t.Context(), image); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CRANNOG_DOCKER_HOST", daemon.Host)
}
