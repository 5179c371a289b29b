package dockertest

import (
	"fmt"
	"os/exec"
	"path/filepath"
)

// BuildRunsc builds gVisor's program for daemons, of the version that this module uses, in a
// directory, and returns its path.
func BuildRunsc(dir string) (string, error) {
	path := filepath.Join(dir, "runsc")
	out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, "gvisor.dev/gvisor/runsc").CombinedOutput() //nolint:noctx // TestMain has no context
	if err != nil {
		return "", fmt.Errorf("build runsc: %w\n%s", err, out)
	}
	return path, nil
}
