// Package distribution_test makes the packages, installs them into empty directories, and compares
// two builds.
package distribution_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// version is the version of the packages of this test.
const version = "9.8.7"

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// build makes the packages and returns their directory.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program := os.Getenv("CRANNOG_TEST_PROGRAM")
	if program == "" {
		t.Fatal("CRANNOG_TEST_PROGRAM names no program: run make test-packages")
	}
	packager := filepath.Join(dir, "packager")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", packager, ".")
	cmd.Dir = "../../deploy/packages"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the packager: %v\n%s", err, out)
	}
	out := filepath.Join(dir, "out")
	run(t, packager, "-program", program, "-tree", "../..", "-out", out, "-version", version, "-time", "1700000000", "-arch", "amd64")
	return out
}

// one returns the only file of a directory with an ending.
func one(t *testing.T, dir, ending string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*"+ending))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: got %q, %v, want one file", ending, found, err)
	}
	return found[0]
}

// expected are files that each package of a system has.
var expected = []string{
	"/usr/bin/crannog", "/etc/crannog/config.toml", "/usr/lib/systemd/system/crannog.service", "/usr/lib/systemd/system/crannog.socket",
	"/usr/share/man/man1/crannog.1.gz", "/usr/share/man/man1/crannog-run.1.gz", "/usr/share/bash-completion/completions/crannog",
	"/usr/share/zsh/vendor-completions/_crannog", "/usr/share/fish/vendor_completions.d/crannog.fish",
	"/usr/share/crannog/prometheus/alerts.yaml", "/usr/share/crannog/grafana/crannog.json",
	"/usr/share/doc/crannog/copyright", "/usr/share/doc/crannog/changelog.gz",
}

// TestPackages checks every package of one build, and that a second one has the same bytes (P98).
func TestPackages(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	out := build(t)
	t.Run("deb", func(t *testing.T) { checkDeb(t, one(t, out, ".deb")) })
	t.Run("rpm", func(t *testing.T) { checkRPM(t, one(t, out, ".rpm")) })
	t.Run("tarball", func(t *testing.T) {
		root := t.TempDir()
		run(t, "tar", "-xzf", one(t, out, ".tar.gz"), "--strip-components=1", "-C", root)
		checkRoot(t, root)
	})
	t.Run("image", func(t *testing.T) { checkImage(t, one(t, out, ".oci.tar")) })
	t.Run("alert rules", func(t *testing.T) {
		run(t, "promtool", "check", "rules", "../../deploy/prometheus/alerts.yaml")
		bad := filepath.Join(t.TempDir(), "bad.yaml")
		if err := os.WriteFile(bad, []byte("groups: [{name: a, rules: [{alert: A, expr: 'rate(x['}]}]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "promtool", "check", "rules", bad).CombinedOutput(); err == nil {
			t.Errorf("promtool accepts a broken rule: %s", out)
		}
	})
	t.Run("checksums", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
		cmd.Dir = out
		if text, err := cmd.CombinedOutput(); err != nil || strings.Count(string(text), ": OK") != 4 {
			t.Errorf("%v\n%s", err, text)
		}
	})
	t.Run("same bytes", func(t *testing.T) {
		first, err := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		second, err := os.ReadFile(filepath.Join(build(t), "SHA256SUMS"))
		if err != nil || !bytes.Equal(first, second) {
			t.Errorf("two builds differ: %v\n%s\n%s", err, first, second)
		}
	})
}

// checkRoot checks an installed tree and runs the program in it.
func checkRoot(t *testing.T, root string) {
	t.Helper()
	for _, name := range expected {
		if info, err := os.Lstat(filepath.Join(root, name)); err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	checkModes(t, root)
	if got := inRoot(t, root, "/usr/bin/crannog", "version"); !strings.Contains(got, "crannog") {
		t.Errorf("crannog version: got %q", got)
	}
	verifyUnits(t, root)
}

// checkModes looks for what a package must not install.
func checkModes(t *testing.T, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if rel, _ := filepath.Rel(root, name); strings.HasPrefix(rel, "var") || strings.HasPrefix(rel, "bin") || rel == "." {
			return nil // dpkg's own data, and the shell of the test
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if info.Mode()&(os.ModeSetuid|os.ModeSetgid|os.ModeSymlink) != 0 || info.Mode().Perm()&0o022 != 0 {
			t.Errorf("%s has the mode %v", name, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// inRoot runs a program in a root directory. Its /proc, which the program needs, is mounted for this
// process only.
func inRoot(t *testing.T, root string, args ...string) string {
	t.Helper()
	out, err := tryInRoot(t, root, args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func tryInRoot(t *testing.T, root string, args ...string) (string, error) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(root, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	const script = `root=$1; shift; mount -t proc proc "$root/proc" && exec chroot "$root" "$@"`
	out, err := exec.CommandContext(t.Context(), "unshare", append([]string{"--mount", "--propagation", "private", "sh", "-c", script, "sh", root}, args...)...).CombinedOutput()
	return string(out), err
}

func verifyUnits(t *testing.T, root string) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Error("systemd-analyze is not installed")
		return
	}
	units := filepath.Join(root, "usr/lib/systemd/system")
	verify := func(dir string) string {
		// The program must be at the unit's path, so the unit gets the path of the test.
		out, _ := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", filepath.Join(dir, "crannog.service"), filepath.Join(dir, "crannog.socket")).CombinedOutput()
		return string(out)
	}
	here := t.TempDir()
	for _, name := range []string{"crannog.service", "crannog.socket"} {
		data, err := os.ReadFile(filepath.Join(units, name))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(data), "/usr/bin/crannog", filepath.Join(root, "usr/bin/crannog"))
		if err := os.WriteFile(filepath.Join(here, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out := verify(here); strings.Contains(out, "crannog.") {
		t.Errorf("systemd-analyze verify:\n%s", out)
	}
	// The positive control: a mistake is found.
	bad := filepath.Join(here, "crannog.service")
	if err := os.WriteFile(bad, []byte("[Service]\nExecStart=/usr/bin/true\nKillMood=process\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := verify(here); !strings.Contains(out, "KillMood") {
		t.Errorf("systemd-analyze verify finds no mistake:\n%s", out)
	}
}

func checkDeb(t *testing.T, name string) {
	control := run(t, "dpkg-deb", "--field", name)
	for _, line := range []string{"Package: crannog", "Version: " + version, "Architecture: amd64", "Section: admin"} {
		if !strings.Contains(control, line) {
			t.Errorf("no %q in\n%s", line, control)
		}
	}
	root := shellRoot(t)
	run(t, "dpkg", "--root="+root, "--force-depends", "--install", name)
	checkRoot(t, root)
	if conf := run(t, "dpkg-query", "--admindir="+filepath.Join(root, "var/lib/dpkg"), "--show", "--showformat=${Conffiles}", "crannog"); !strings.Contains(conf, "/etc/crannog/config.toml") {
		t.Errorf("conffiles: %q", conf)
	}
	if out := inRoot(t, root, "/usr/bin/crannog", "config", "--state", "/var/lib/crannog"); !strings.Contains(out, "log_format") {
		t.Errorf("crannog config: %s", out)
	}
	// What this root lacks is no matter: doctor must run and report.
	if out, _ := tryInRoot(t, root, "/usr/bin/crannog", "doctor", "--state", "/var/lib/crannog"); !strings.Contains(out, "state directory") || !strings.Contains(out, "landlock") {
		t.Errorf("crannog doctor: %s", out)
	}
	// A changed setting survives an upgrade, and data survive the removal.
	settings := filepath.Join(root, "etc/crannog/config.toml")
	if err := os.WriteFile(settings, []byte("log_level = \"warn\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "dpkg", "--root="+root, "--force-depends", "--install", name)
	if data, err := os.ReadFile(settings); err != nil || string(data) != "log_level = \"warn\"\n" {
		t.Errorf("after an upgrade: %q, %v", data, err)
	}
	state := filepath.Join(root, "var/lib/crannog")
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	run(t, "dpkg", "--root="+root, "--purge", "crannog")
	if _, err := os.Stat(state); err != nil {
		t.Error(err)
	}
	for _, gone := range []string{"usr/bin/crannog", "etc/crannog/config.toml", "usr/lib/systemd/system/crannog.service"} {
		if _, err := os.Stat(filepath.Join(root, gone)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", gone, err)
		}
	}
}

// shellRoot returns a root directory with a shell, in which dpkg runs the package's scripts.
func shellRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"bin", "var/lib/dpkg/info", "var/lib/dpkg/updates", "tmp", "dev", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"status", "available"} {
		if err := os.WriteFile(filepath.Join(root, "var/lib/dpkg", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "cp", "/bin/busybox", filepath.Join(root, "bin/busybox"))
	if err := os.Symlink("busybox", filepath.Join(root, "bin/sh")); err != nil {
		t.Fatal(err)
	}
	return root
}

func checkRPM(t *testing.T, name string) {
	if out := run(t, "rpm", "--query", "--package", "--queryformat", "%{NAME} %{VERSION} %{ARCH}", name); out != "crannog "+version+" x86_64" {
		t.Errorf("got %q", out)
	}
	listed := strings.Fields(run(t, "rpm", "--query", "--package", "--list", name))
	for _, want := range expected {
		if !slices.Contains(listed, want) {
			t.Errorf("%s is missing", want)
		}
	}
	if out := run(t, "rpm", "--query", "--package", "--configfiles", name); strings.TrimSpace(out) != "/etc/crannog/config.toml" {
		t.Errorf("config files: %q", out)
	}
	run(t, "rpm", "--checksig", "--nosignature", name)
	root := t.TempDir()
	run(t, "rpm", "--root", root, "--install", "--nodeps", "--noscripts", name)
	checkRoot(t, root)
}

func checkImage(t *testing.T, name string) {
	dir := t.TempDir()
	run(t, "tar", "-xf", name, "-C", dir)
	at, err := layout.FromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	index, err := at.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("got %+v, %v", manifest, err)
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil || !slices.Equal(config.Config.Entrypoint, []string{"/usr/bin/crannog"}) || config.Architecture != "amd64" {
		t.Fatalf("got %+v, %v", config, err)
	}
	content := mutate.Extract(img)
	defer content.Close()
	root := t.TempDir()
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s belongs to %d:%d", h.Name, h.Uid, h.Gid)
		}
		to := filepath.Join(root, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(to, 0o755)
		} else {
			err = writeFile(to, r, h.FileInfo().Mode())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	args := append(slices.Clone(config.Config.Entrypoint), "version")
	if out := inRoot(t, root, args...); !strings.Contains(out, "crannog") {
		t.Errorf("got %q", out)
	}
}

func writeFile(name string, from io.Reader, mode os.FileMode) error {
	data, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	return os.WriteFile(name, data, mode)
}
