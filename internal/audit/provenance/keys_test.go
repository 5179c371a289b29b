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

// Of several processes at once, one creates the key and all use it.
func TestOneKeyOfManyProcesses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const many = 8
	ids := make([]string, many)
	var group sync.WaitGroup
	for i := range many {
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
			t.Errorf("%q beside %q", id, key.ID())
		}
	}
	info, err := os.Stat(filepath.Join(dir, "key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

func TestUnusableKeys(t *testing.T) {
	for name, tamper := range map[string]func(t *testing.T, dir string) error{
		"readable by others":    func(_ *testing.T, dir string) error { return os.Chmod(filepath.Join(dir, "key"), 0o640) },
		"a directory of others": func(_ *testing.T, dir string) error { return os.Chmod(dir, 0o755) },
		"cut":                   func(_ *testing.T, dir string) error { return os.Truncate(filepath.Join(dir, "key"), 40) },
		"empty":                 func(_ *testing.T, dir string) error { return os.Truncate(filepath.Join(dir, "key"), 0) },
		"a link to somebody else's": func(t *testing.T, dir string) error {
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
			t.Fatalf("before there is one: %v", err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Error("looking made a directory")
		}
		first, err := keys.Signer()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := keys.Signer(); err != nil || again.Public.ID() != first.Public.ID() {
			t.Fatalf("the second time it is another: %v", err)
		}
		if err := tamper(t, dir); err != nil {
			t.Fatal(err)
		}
		// An unusable key is not silently replaced.
		if s, err := keys.Signer(); err == nil {
			t.Errorf("%s: signs with %s", name, s.Public.ID())
		}
		if _, err := keys.Public(); err == nil {
			t.Errorf("%s: is verified with", name)
		}
	}
}

// A partial key of a process that was killed is not used.
func TestKeyAfterACrash(t *testing.T) {
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
			t.Error("it is still there")
		}
	}
}
