package provenance_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/crannog/crannog/internal/audit/provenance"
	"github.com/crannog/crannog/internal/fault"
)

// makerVar names the directory in which a child process of this test creates a key.
const makerVar = "CRANNOG_TEST_KEY_MAKER"

func TestMain(m *testing.M) {
	dir := os.Getenv(makerVar)
	if dir == "" {
		os.Exit(m.Run())
	}
	s, err := provenance.NewKeys(dir).Signer()
	if err != nil {
		os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
	os.Stdout.WriteString(s.Public.ID())
}

// When several processes start at once, one creates the key and all use it.
func TestConcurrentProcessesShareOneKey(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const processes = 8
	ids := make([]string, processes)
	var group sync.WaitGroup
	for i := range processes {
		group.Go(func() {
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), makerVar+"="+dir)
			out, err := cmd.Output()
			if err != nil {
				t.Error(err, string(out))
			}
			ids[i] = string(out)
		})
	}
	group.Wait()
	key, err := provenance.NewKeys(dir).Public()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if id != key.ID() {
			t.Errorf("a process used the key %q, want %q", id, key.ID())
		}
	}
	info, err := os.Stat(filepath.Join(dir, "key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the key: got %v, %v, want 0600", info.Mode(), err)
	}
}

func TestUnusableKeyIsRejected(t *testing.T) {
	for name, tamper := range map[string]func(t *testing.T, dir string) error{
		"readable by others":           func(_ *testing.T, dir string) error { return os.Chmod(filepath.Join(dir, "key"), 0o640) },
		"directory readable by others": func(_ *testing.T, dir string) error { return os.Chmod(dir, 0o755) },
		"truncated":                    func(_ *testing.T, dir string) error { return os.Truncate(filepath.Join(dir, "key"), 40) },
		"empty":                        func(_ *testing.T, dir string) error { return os.Truncate(filepath.Join(dir, "key"), 0) },
		"symbolic link": func(t *testing.T, dir string) error {
			other := filepath.Join(t.TempDir(), "other")
			if err := os.Rename(filepath.Join(dir, "key"), other); err != nil {
				return err
			}
			return os.Symlink(other, filepath.Join(dir, "key"))
		},
	} {
		dir := filepath.Join(t.TempDir(), "keys")
		keys := provenance.NewKeys(dir)
		if _, err := keys.Public(); fault.CodeOf(err) != "provenance_key_missing" {
			t.Fatalf("Public without a key: got %v, want provenance_key_missing", err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Error("Public created the directory")
		}
		first, err := keys.Signer()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := keys.Signer(); err != nil || again.Public.ID() != first.Public.ID() {
			t.Fatalf("the second call of Signer: got another key or %v", err)
		}
		if err := tamper(t, dir); err != nil {
			t.Fatal(err)
		}
		// An unusable key is not silently replaced.
		if s, err := keys.Signer(); err == nil {
			t.Errorf("%s: Signer returned the key %s, want an error", name, s.Public.ID())
		}
		if _, err := keys.Public(); err == nil {
			t.Errorf("%s: Public returned no error", name)
		}
	}
}

// A partial key of a process that was killed is not used.
func TestPartialKeyIsNotUsed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "key.new"), []byte("-----BEGIN"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := provenance.NewKeys(dir).Signer(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range left {
		if strings.HasSuffix(f.Name(), ".new") {
			t.Error("the partial key is still there")
		}
	}
}
