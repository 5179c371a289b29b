package images_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// npmInstalled installs the npm packages of the tests in a directory, and returns a copy of it that
// has them.
func npmInstalled(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.CopyFS(dir, os.DirFS(name)); err != nil {
		t.Fatal(err)
	}
	install := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries", "5")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	return dir
}

// nodeTests runs drive.test.mjs in a directory of npmInstalled.
func nodeTests(t *testing.T, dir string, env ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", "--test", "--test-reporter=spec", "drive.test.mjs")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("the clients' tests: %v", err)
	}
	t.Logf("%s", out)
}
