package certs_test

import (
	"bytes"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/egress/certs"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// applyAddition returns the file that a sandbox makes from an addition.
func applyAddition(old []byte, f certs.File) []byte {
	return slices.Concat(f.Around.Head, old[f.Around.From:f.Around.To], f.Data)
}

func TestJavaAddition(t *testing.T) {
	publicRoot, a := authority(t, time.Now).Certificate(), authority(t, time.Now)
	b, err := certs.ReadBundle(publicRoot)
	if err != nil {
		t.Fatal(err)
	}
	old, err := certs.JavaStore(b, authority(t, time.Now).Certificate())
	if err != nil {
		t.Fatal(err)
	}
	add, ok, err := certs.JavaAddition(old.Data, a.Certificate())
	if err != nil || !ok || add.Around.Length != len(old.Data) || len(add.Data) > 2048 {
		t.Fatalf("JavaAddition = %v %v %+v, want a short addition", ok, err, add)
	}
	store := applyAddition(old.Data, add)
	block, _ := pem.Decode(a.Certificate())
	if !bytes.Contains(store, block.Bytes) || !bytes.Contains(store, old.Data[12:len(old.Data)-20]) || store[11] != 3 {
		t.Errorf("the store has %d bytes and %d entries, want the old store with both certificates and 3 entries", len(store), store[11])
	}
	// The result is a store again, but nothing can be added to it under the same name.
	if _, ok, _ := certs.JavaAddition(store, publicRoot); ok {
		t.Error("JavaAddition accepted a second addition under the same name")
	}
	for name, change := range map[string]func([]byte) []byte{
		"empty":            func([]byte) []byte { return nil },
		"cut off":          func(s []byte) []byte { return s[:len(s)-1] },
		"damaged":          func(s []byte) []byte { s[100] ^= 1; return s },
		"another password": func(s []byte) []byte { s[len(s)-1] ^= 1; return s },
		"another format":   func(s []byte) []byte { s[0] = 0x30; return s },
	} {
		if _, ok, err := certs.JavaAddition(change(bytes.Clone(old.Data)), a.Certificate()); ok || err != nil {
			t.Errorf("%s: JavaAddition = %v %v, want false and no error", name, ok, err)
		}
	}
	if _, _, err := certs.JavaAddition(old.Data, nil); err == nil {
		t.Error("JavaAddition without a certificate returned no error")
	}
}

// Java itself reads the result of an addition to the host's own store.
func TestJavaReadsAddition(t *testing.T) {
	hosttest.Need(t, hosttest.Program("keytool"), hosttest.Requirement{Name: "a store at " + certs.JavaPath, Has: func() bool {
		_, err := os.Stat(certs.JavaPath)
		return err == nil
	}})
	old, err := os.ReadFile(certs.JavaPath)
	if err != nil {
		t.Fatal(err)
	}
	add, ok, err := certs.JavaAddition(old, authority(t, time.Now).Certificate())
	if err != nil || !ok {
		t.Fatalf("JavaAddition = %v %v, want an addition", ok, err)
	}
	path := filepath.Join(t.TempDir(), "cacerts")
	if err := os.WriteFile(path, applyAddition(old, add), 0o600); err != nil {
		t.Fatal(err)
	}
	list := func(path string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "keytool", "-list", "-keystore", path, "-storepass", "changeit").CombinedOutput()
		if err != nil {
			t.Fatalf("keytool -list %s: %v: %s", path, err, out)
		}
		return string(out)
	}
	before, after := list(certs.JavaPath), list(path)
	if n := strings.Count(before, "trustedCertEntry"); !strings.Contains(after, "crannog, ") || strings.Count(after, "trustedCertEntry") != n+1 {
		t.Errorf("keytool lists %d entries before, and does not list crannog and one more after:\n%.500s", n, after)
	}
}
