package pullthrough_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	openpgp "github.com/ProtonMail/go-crypto/openpgp/v2"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/pullthrough"
	"github.com/crannog/crannog/internal/packages/store"
)

// newArchiveKey returns a key that was made two days ago, and that expires after a time which is not
// zero.
func newArchiveKey(life time.Duration) *openpgp.Entity {
	key, err := openpgp.NewEntity("archive", "", "archive@example.test", &packet.Config{
		Algorithm: packet.PubKeyAlgoEdDSA, KeyLifetimeSecs: uint32(life.Seconds()),
		Time: func() time.Time { return time.Now().Add(-2 * day) },
	})
	if err != nil {
		panic(err)
	}
	return key
}

// archiveKey is the key of the tests' archives, which each newStorage knows.
var archiveKey = sync.OnceValue(func() *openpgp.Entity { return newArchiveKey(0) })

// trust replaces the keys that may sign lists.
func trust(t *testing.T, state string, keys ...*openpgp.Entity) {
	t.Helper()
	var out bytes.Buffer
	for _, k := range keys {
		if err := k.Serialize(&out); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(state, store.DirName, store.KeyringFile), out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// signedBy returns a text with a signature that was made an hour after the key.
func signedBy(t *testing.T, key *openpgp.Entity, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := clearsign.Encode(&out, key.PrivateKey, &packet.Config{Time: func() time.Time { return time.Now().Add(time.Hour - 2*day) }})
	if err == nil {
		_, err = w.Write([]byte(text))
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return append(out.Bytes(), '\n')
}

const (
	inRelease = "/debian/dists/bookworm/InRelease"
	aList     = "/debian/dists/bookworm/main/binary-amd64/Packages"
	aPackage  = "/debian/pool/main/h/hello/hello_1.0_amd64.deb"
)

// file returns what the registry has.
func (r *registry) file(path string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return string(r.files[path])
}

// plain returns the text of the archive's list without its signature.
func (r *registry) plain(t *testing.T) string {
	t.Helper()
	block, _ := clearsign.Decode([]byte(r.file(inRelease)))
	if block == nil {
		t.Fatal("the archive's list is not signed")
	}
	return string(block.Plaintext)
}

// wantRefusal requires a refusal with a code and texts in its reason.
func wantRefusal(t *testing.T, what string, err error, code string, texts ...string) {
	t.Helper()
	stop, ok := errors.AsType[*pullthrough.Refusal](err)
	if !ok || stop.Code != code || stop.Rule != packages.RuleIntegrity {
		t.Errorf("%s: got %v, want %s", what, err, code)
		return
	}
	for _, want := range texts {
		if !strings.Contains(stop.Reason, want) {
			t.Errorf("%s: got the reason %q, want %q in it", what, stop.Reason, want)
		}
	}
}

func TestSignatureOfArchiveIsVerified(t *testing.T) {
	r := newRegistry(t)
	r.debian(t, 30*day, version{"1.0", "one", 0})
	genuine, plain := r.file(inRelease), r.plain(t)
	stranger, brief := newArchiveKey(0), newArchiveKey(day)
	id := fmt.Sprintf("%016X", stranger.PrimaryKey.KeyId)
	const evil = "Codename: bookworm\nSHA256:\n"
	until := func(at time.Time) string {
		return plain + "Valid-Until: " + at.UTC().Format("Mon, 02 Jan 2006 15:04:05 MST") + "\n"
	}
	for name, c := range map[string]struct {
		list string
		code string
		want []string
	}{
		"genuine":                    {genuine, "", nil},
		"lines that end with CR LF":  {strings.ReplaceAll(genuine, "\n", "\r\n"), "", nil},
		"with Valid-Until":           {string(signedBy(t, archiveKey(), until(time.Now().Add(time.Hour)))), "", nil},
		"expired Valid-Until":        {string(signedBy(t, archiveKey(), until(time.Now().Add(-time.Hour)))), "package_integrity", []string{"Valid-Until", "127.0.0.1/debian/bookworm"}},
		"unreadable Valid-Until":     {string(signedBy(t, archiveKey(), plain+"Valid-Until: soon\n")), "package_integrity", []string{"Valid-Until"}},
		"list of another suite":      {string(signedBy(t, archiveKey(), strings.ReplaceAll(plain, "bookworm", "trixie"))), "package_integrity", []string{"suite"}},
		"unknown key":                {string(signedBy(t, stranger, plain)), "package_unverified", []string{id, "package_keyrings", "packages.unverified", "apt:127.0.0.1/debian/bookworm"}},
		"expired key":                {string(signedBy(t, brief, plain)), "package_unverified", []string{"expired"}},
		"tampered text":              {strings.Replace(genuine, "Debian", "Dobian", 1), "package_integrity", []string{"not what the key"}},
		"text before":                {evil + genuine, "package_integrity", []string{"text before"}},
		"empty line before":          {"\n" + genuine, "package_integrity", []string{"text before"}},
		"text after":                 {genuine + evil, "package_integrity", []string{"text after"}},
		"another signed text after":  {genuine + string(signedBy(t, stranger, evil)), "package_integrity", []string{"text after"}},
		"another signed text before": {string(signedBy(t, stranger, evil)) + genuine, "package_integrity", []string{"text after"}},
		"text in the signature":      {strings.Replace(genuine, "BEGIN PGP SIGNATURE-----\n", "BEGIN PGP SIGNATURE-----\nCodename: evil\n", 1), "package_integrity", []string{"in its signature"}},
		"text in the head":           {strings.Replace(genuine, "\nHash:", "\nCodename: evil\nHash:", 1), "package_integrity", []string{"no signature that can be read"}},
		"no signature":               {plain, "package_integrity", []string{"no signature"}},
		"half":                       {genuine[:len(genuine)-40], "package_integrity", []string{"no signature"}},
		"a page of a hotel":          {"<html>log in</html>", "package_integrity", []string{"no signature"}},
	} {
		s := newStorage(t)
		trust(t, s.dir, archiveKey(), brief)
		cache, this := pullthrough.New(s, time.Now), of(packages.Apt)
		r.set(inRelease, []byte(c.list))
		text, a, err := get(t, cache, r, inRelease, this)
		_, _, fileErr := get(t, cache, r, aList, this)
		if c.code == "" {
			if err != nil || fileErr != nil || text != c.list || a.Fact.Verdict != packages.Passed {
				t.Errorf("%s: got %+v (%v, %v), want it", name, a.Fact, err, fileErr)
			}
			continue
		}
		wantRefusal(t, name, err, c.code, c.want...)
		wantRefusal(t, name+", a file", fileErr, c.code)
		if _, _, err := s.Find(r.URL + inRelease); err == nil {
			t.Errorf("%s: it stays in the cache, which sandboxes share", name)
		}
		r.set(inRelease, []byte(genuine))
		if _, _, err := get(t, cache, r, inRelease, this); err != nil {
			t.Errorf("%s: the genuine list after it: got %v, want it at once", name, err)
		}
	}
}

// A line of the signed text that begins with a dash is escaped. The escape is no part of the text.
func TestEscapedDashesAreRead(t *testing.T) {
	r, s := newRegistry(t), newStorage(t)
	r.debian(t, 30*day, version{"1.0", "one", 0})
	plain := "-Note: a\n" + r.plain(t)
	list := string(signedBy(t, archiveKey(), plain))
	if !strings.Contains(list, "- -Note: a\n") {
		t.Fatalf("the list has no escaped line: %s", list)
	}
	// Any line may be escaped, so this list has the same signature.
	list = strings.Replace(list, "\nCodename: bookworm", "\n- Codename: bookworm", 1)
	r.set(inRelease, []byte(list))
	if text, _, err := get(t, pullthrough.New(s, time.Now), r, inRelease, of(packages.Apt)); err != nil || text != list {
		t.Errorf("got %q (%v), want it as it is", text, err)
	}
	r.set(inRelease, []byte(strings.Replace(list, "\n- Codename: bookworm", "\n- Codename: trixie", 1)))
	_, _, err := get(t, pullthrough.New(newStorage(t), time.Now), r, inRelease, of(packages.Apt))
	wantRefusal(t, "tampered", err, "package_integrity", "not what the key")
}

func TestUnverifiedArchiveNeedsPermission(t *testing.T) {
	r, s := newRegistry(t), newStorage(t)
	trust(t, s.dir, newArchiveKey(0))
	r.debian(t, 30*day, version{"1.0", "one", 0})
	c, this := pullthrough.New(s, time.Now), of(packages.Apt)
	permit := func(entry string) func(*pullthrough.Request) {
		return func(r *pullthrough.Request) {
			r.Unverified = func(a packages.Artifact) bool { return a.String() == entry }
		}
	}
	all := []string{inRelease, aList, aPackage}
	for _, path := range all {
		if _, a, err := get(t, c, r, path, this, permit("apt:127.0.0.1/debian/bookworm")); err != nil || a.Fact.Verdict != packages.Unverified {
			t.Errorf("%s, permitted: got %+v (%v), want it, as unverified", path, a.Fact, err)
		}
	}
	// What one sandbox may have is in the cache now, and another sandbox still does not get it.
	for _, path := range all {
		_, _, err := get(t, c, r, path, this)
		wantRefusal(t, path, err, "package_unverified", "unknown keys")
		_, _, err = get(t, c, r, path, this, permit("apt:127.0.0.1/debian/trixie"))
		wantRefusal(t, path+", another suite permitted", err, "package_unverified")
		_, _, err = get(t, c, r, path, this, func(r *pullthrough.Request) { r.Offline = true })
		wantRefusal(t, path+", offline", err, "package_unverified")
	}
	// The key of the archive comes to the host.
	trust(t, s.dir, archiveKey())
	for _, path := range all {
		if _, a, err := get(t, c, r, path, this); err != nil || a.Fact.Verdict != packages.Passed {
			t.Errorf("%s, with the key: got %+v (%v), want it", path, a.Fact, err)
		}
	}
	// Permission is for what nothing vouches for, and not for what somebody has changed.
	r.set(inRelease, []byte(strings.Replace(r.file(inRelease), "Debian", "Dobian", 1)))
	_, _, err := get(t, pullthrough.New(newStorage(t), time.Now), r, inRelease, this, permit("apt:127.0.0.1/debian/bookworm"))
	wantRefusal(t, "tampered", err, "package_integrity")
}

// A suite that another sandbox may use must not keep a sandbox from the packages of other suites.
func TestUnverifiedSuiteDoesNotBlockOthers(t *testing.T) {
	r, s := newRegistry(t), newStorage(t)
	r.debian(t, 30*day, version{"1.0", "one", 0})
	other := strings.NewReplacer("bookworm", "mine", "stable", "mine").Replace(r.plain(t))
	r.set("/debian/dists/mine/InRelease", signedBy(t, newArchiveKey(0), other))
	for path, text := range r.files {
		if strings.Contains(path, "/by-hash/") {
			r.set(strings.Replace(path, "bookworm", "mine", 1), text)
		}
	}
	c, this := pullthrough.New(s, time.Now), of(packages.Apt)
	permit := func(r *pullthrough.Request) { r.Unverified = func(packages.Artifact) bool { return true } }
	if _, a, err := get(t, c, r, "/debian/dists/mine/main/binary-amd64/Packages", this, permit); err != nil || a.Fact.Verdict != packages.Unverified {
		t.Fatalf("the other suite: got %+v (%v), want it, as unverified", a.Fact, err)
	}
	if _, _, err := get(t, c, r, aPackage, this); err == nil {
		t.Error("the package was served although only an unverified list has it")
	}
	if _, _, err := get(t, c, r, aList, this); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*pullthrough.Request){"without permission": this, "with permission": permit} {
		if _, a, err := get(t, c, r, aPackage, this, change); err != nil || a.Fact.Verdict != packages.Passed {
			t.Errorf("%s: got %+v (%v), want the package, which a verified list has", name, a.Fact, err)
		}
	}
}

// A list that is valid when it is parsed can expire while the process remembers it.
func TestListExpiresWhileItIsRemembered(t *testing.T) {
	r, s := newRegistry(t), newStorage(t)
	r.debian(t, 30*day, version{"1.0", "one", 0})
	now := time.Now()
	end := now.Add(time.Minute)
	r.set(inRelease, signedBy(t, archiveKey(), r.plain(t)+"Valid-Until: "+end.UTC().Format("Mon, 02 Jan 2006 15:04:05 MST")+"\n"))
	c := pullthrough.New(s, func() time.Time { return now })
	if _, _, err := get(t, c, r, inRelease, of(packages.Apt)); err != nil {
		t.Fatal(err)
	}
	now = end.Add(time.Second)
	_, _, err := get(t, c, r, inRelease, of(packages.Apt))
	wantRefusal(t, "after Valid-Until", err, "package_integrity", "Valid-Until")
}
