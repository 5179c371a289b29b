package secrets_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/crannog/crannog/internal/egress/secrets"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/store"
)

var (
	local = secrets.Caller{Local: true}
	alice = secrets.Caller{Owner: "kalice"}
	bob   = secrets.Caller{Owner: "kbob"}
)

// canary is a value that must appear nowhere outside of the vault.
const canary = "canary-Zq81-value-of-a-secret"

type fixture struct {
	*secrets.Vault
	store *store.Store
	dir   string
	key   string // the key file
}

func open(t testing.TB, dir string, o secrets.Options) *fixture {
	t.Helper()
	s, err := store.Open(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, secrets.KeyFileName)
	o.Store = s
	if o.Keys == nil {
		o.Keys = secrets.NewKeyFile(path)
	}
	return &fixture{secrets.New(o), s, dir, path}
}

func (f *fixture) set(t testing.TB, caller secrets.Caller, name, value string) secrets.Info {
	t.Helper()
	info, err := f.Set(t.Context(), caller, name, []byte(value), nil)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func (f *fixture) value(t testing.TB, caller secrets.Caller, ref string) secrets.Resolved {
	t.Helper()
	r, err := f.Resolve(t.Context(), caller, ref)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// wantFault checks the kind and code of an error, and that it does not show the value.
func wantFault(t testing.TB, err error, kind fault.Kind, code string) {
	t.Helper()
	if fault.KindOf(err) != kind || fault.CodeOf(err) != code {
		t.Errorf("got %v (%s, %s), want %s, %s", err, fault.KindOf(err), fault.CodeOf(err), kind, code)
	}
	if err != nil && strings.Contains(err.Error()+fault.HintOf(err), canary) {
		t.Errorf("an error shows the value: %v", err)
	}
}

func TestSecretIsSetRotatedAndRemoved(t *testing.T) {
	f := open(t, t.TempDir(), secrets.Options{})
	info := f.set(t, alice, "GITHUB_TOKEN", canary)
	if !strings.HasPrefix(info.ID, secrets.IDPrefix) || info.Version != 1 || info.Owner != "kalice" {
		t.Errorf("Set: got %+v, want version 1 of kalice's secret", info)
	}
	first := f.value(t, alice, "GITHUB_TOKEN")
	if first.Value.Reveal() != canary || len(first.Old) != 0 {
		t.Errorf("Resolve: got %d old values or a wrong value, want the value alone", len(first.Old))
	}
	_, err := f.Set(t.Context(), alice, "github_token", []byte(canary), nil)
	wantFault(t, err, fault.Exists, "secret_exists")

	info, err = f.Rotate(t.Context(), alice, info.ID, []byte("the second value"), map[string]string{"team": "pay"})
	if err != nil || info.Version != 2 || info.Metadata["team"] != "pay" {
		t.Fatalf("Rotate: got %+v, %v; want version 2 with the new metadata", info, err)
	}
	// Threat S6 (docs/reference/threat-model.md): the old value is returned too, for redaction.
	second := f.value(t, alice, "github_token")
	if second.Value.Reveal() != "the second value" || len(second.Old) != 1 || second.Old[0].Reveal() != canary || second.Generation <= first.Generation {
		t.Errorf("after the rotation: generation %d (was %d) and %d old values, want a greater one and 1", second.Generation, first.Generation, len(second.Old))
	}
	for i := range 20 {
		if _, err := f.Rotate(t.Context(), alice, "GITHUB_TOKEN", fmt.Appendf(nil, "value number %d", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	last := f.value(t, alice, "GITHUB_TOKEN")
	if len(last.Old) != secrets.KeepOld.Most || last.Old[0].Reveal() != "value number 18" {
		t.Errorf("after 20 rotations: %d old values, want the latest %d", len(last.Old), secrets.KeepOld.Most)
	}
	list, err := f.List(t.Context(), alice)
	if err != nil || len(list) != 1 || list[0].Version != 22 || list[0].Metadata["team"] != "pay" {
		t.Errorf("List: got %+v, %v; want version 22 of one secret", list, err)
	}
	if _, err := f.Remove(t.Context(), alice, "GITHUB_TOKEN"); err != nil {
		t.Fatal(err)
	}
	_, err = f.Resolve(t.Context(), alice, "GITHUB_TOKEN")
	wantFault(t, err, fault.NotFound, "secret_not_found")
	_, err = f.Remove(t.Context(), alice, "GITHUB_TOKEN")
	wantFault(t, err, fault.NotFound, "secret_not_found")
	// An approval for the removed secret must not be valid for a new one with the same name.
	f.set(t, alice, "GITHUB_TOKEN", canary)
	if again := f.value(t, alice, "GITHUB_TOKEN"); again.Generation <= last.Generation || len(again.Old) != 0 {
		t.Errorf("new secret with an old name: generation %d (was %d) and %d old values, want a greater one and 0", again.Generation, last.Generation, len(again.Old))
	}
}

func TestSecretsOfOtherOwnersAreNotFound(t *testing.T) {
	f := open(t, t.TempDir(), secrets.Options{})
	info := f.set(t, alice, "TOKEN", canary)
	for _, caller := range []secrets.Caller{bob, local} {
		for _, ref := range []string{"TOKEN", info.ID} {
			_, err := f.Find(t.Context(), caller, ref)
			wantFault(t, err, fault.NotFound, "secret_not_found")
			_, err = f.Remove(t.Context(), caller, ref)
			wantFault(t, err, fault.NotFound, "secret_not_found")
			_, err = f.Rotate(t.Context(), caller, ref, []byte("another value"), nil)
			wantFault(t, err, fault.NotFound, "secret_not_found")
		}
		_, err := f.Resolve(t.Context(), caller, "TOKEN")
		wantFault(t, err, fault.NotFound, "secret_not_found")
		if list, err := f.List(t.Context(), caller); err != nil || len(list) != 0 {
			t.Errorf("List of %v: got %v, %v; want no secret", caller, list, err)
		}
	}
	f.set(t, bob, "TOKEN", "the value of bob")
	if f.value(t, alice, "TOKEN").Value.Reveal() != canary || f.value(t, bob, "TOKEN").Value.Reveal() != "the value of bob" {
		t.Error("two owners' secrets of one name are mixed up")
	}
}

// The zero caller has no permissions, and is not the local user.
func TestZeroCallerHasNoPermissions(t *testing.T) {
	f := open(t, t.TempDir(), secrets.Options{Getenv: func(string) string { return canary }})
	for _, caller := range []secrets.Caller{{}, {Owner: "k", Local: true}} {
		_, err := f.Set(t.Context(), caller, "A", []byte(canary), nil)
		wantFault(t, err, fault.Unauthenticated, "unauthenticated")
		_, err = f.List(t.Context(), caller)
		wantFault(t, err, fault.Unauthenticated, "unauthenticated")
		_, err = f.Resolve(t.Context(), caller, "env:X")
		wantFault(t, err, fault.Unauthenticated, "unauthenticated")
		_, err = f.RotateKey(t.Context(), caller)
		wantFault(t, err, fault.Unauthenticated, "unauthenticated")
	}
	_, err := f.RotateKey(t.Context(), alice)
	wantFault(t, err, fault.Denied, "local_only")
}

func TestInvalidSecretsAreRejected(t *testing.T) {
	f := open(t, t.TempDir(), secrets.Options{})
	for _, name := range []string{"", "1A", "-a", "A B", "A.B", "Ä", "a/b", "sec_abc", "SEC_abc", strings.Repeat("a", 65), "A\n", "file:x"} {
		_, err := f.Set(t.Context(), local, name, []byte(canary), nil)
		wantFault(t, err, fault.Invalid, "secret_name_invalid")
	}
	for _, name := range []string{"A", "_", "openai-api-key", strings.Repeat("a", 64)} {
		f.set(t, local, name, canary)
	}
	_, err := f.Set(t.Context(), local, "SHORT", []byte("1234567"), nil)
	wantFault(t, err, fault.Invalid, "secret_too_short")
	_, err = f.Rotate(t.Context(), local, "A", []byte("1234567"), nil)
	wantFault(t, err, fault.Invalid, "secret_too_short")
	for _, m := range []map[string]string{{"": "v"}, {strings.Repeat("k", 129): ""}, {"k": strings.Repeat("v", 1025)}} {
		_, err := f.Set(t.Context(), local, "M", []byte(canary), m)
		wantFault(t, err, fault.Invalid, "secret_metadata_invalid")
	}
}

// A Resolved reveals nothing with any verb of fmt.
func TestResolvedDoesNotPrint(t *testing.T) {
	f := open(t, t.TempDir(), secrets.Options{})
	f.set(t, local, "A", canary)
	if _, err := f.Rotate(t.Context(), local, "A", []byte(canary+"2"), nil); err != nil {
		t.Fatal(err)
	}
	r := f.value(t, local, "A")
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		if text := fmt.Sprintf(verb, r); strings.Contains(text, "canary") || strings.Contains(text, "63616e617279") {
			t.Errorf("%s prints %s", verb, text)
		}
	}
}

// Concurrent rotations lose no value: one that fails reports it.
func TestConcurrentRotationsLoseNoValue(t *testing.T) {
	f := open(t, t.TempDir(), secrets.Options{})
	f.set(t, local, "A", canary)
	var wg sync.WaitGroup
	var mu sync.Mutex
	done := map[string]bool{canary: true}
	for i := range 8 {
		wg.Go(func() {
			value := fmt.Sprintf("%s %d", canary, i)
			_, err := f.Rotate(t.Context(), local, "A", []byte(value), nil)
			switch {
			case err == nil:
				mu.Lock()
				done[value] = true
				mu.Unlock()
			case fault.CodeOf(err) != "secret_changed":
				t.Error(err)
			}
		})
	}
	wg.Wait()
	r := f.value(t, local, "A")
	if info, err := f.Find(t.Context(), local, "A"); err != nil || int(info.Version) != len(done) || len(r.Old) != len(done)-1 || !done[r.Value.Reveal()] {
		t.Errorf("after %d rotations: version %d and %d old values (%v), want all values", len(done)-1, info.Version, len(r.Old), err)
	}
}

// files returns the bytes of all files below a directory.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		out[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
