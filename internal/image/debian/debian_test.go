package debian

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ulikunitz/xz"

	"github.com/crannog/crannog/internal/fault"
)

// archive is a mirror whose files a test may change.
type archive struct {
	t     *testing.T
	files map[string][]byte
	key   *openpgp.Entity
	list  bytes.Buffer // list of packages
	until string       // Valid-Until of the list, or ""
	url   string
}

// newKey returns an OpenPGP key.
func newKey(t *testing.T) *openpgp.Entity {
	t.Helper()
	key, err := openpgp.NewEntity("archive", "", "archive@example.test", nil)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// newArchive starts a mirror without files.
func newArchive(t *testing.T) *archive {
	t.Helper()
	a := &archive{t: t, files: map[string][]byte{}, key: newKey(t)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, ok := a.files[strings.TrimPrefix(r.URL.Path, "/")]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Write(data)
	}))
	t.Cleanup(server.Close)
	a.url = server.URL
	return a
}

// keyring writes the public part of a key.
func (a *archive) keyring(key *openpgp.Entity) string {
	a.t.Helper()
	name := filepath.Join(a.t.TempDir(), "keys.gpg")
	var b bytes.Buffer
	if err := errors.Join(key.Serialize(&b), os.WriteFile(name, b.Bytes(), 0o600)); err != nil {
		a.t.Fatal(err)
	}
	return name
}

// packageOf returns a .deb with files. The field Uname of each header holds the content of its
// file, because a tar.Header has no field for it.
func packageOf(t *testing.T, files ...tar.Header) []byte {
	t.Helper()
	pack := func(files []tar.Header) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		w := tar.NewWriter(z)
		for _, h := range files {
			content := h.Uname
			h.Uname, h.Size = "", int64(len(content))
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(w, content); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Close(), z.Close()); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	control := pack([]tar.Header{{Typeflag: tar.TypeReg, Name: "./control", Mode: 0o644, Uname: "Package: x\nVersion: 1\nArchitecture: all\nMaintainer: m <m@example.test>\nDescription: x\n"}})
	b := bytes.NewBufferString("!<arch>\n")
	for _, m := range []struct {
		name string
		data []byte
	}{{"debian-binary", []byte("2.0\n")}, {"control.tar.gz", control}, {"data.tar.gz", pack(files)}} {
		fmt.Fprintf(b, "%-16s%-12d%-6d%-6d%-8s%-10d`\n%s", m.name, 0, 0, 0, "100644", len(m.data), m.data)
		if len(m.data)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}

// add adds a package with one file of its own.
func (a *archive) add(name, fields string, files ...tar.Header) {
	a.t.Helper()
	files = append(files, tar.Header{Typeflag: tar.TypeReg, Name: "./usr/share/" + name, Mode: 0o644, Uname: name})
	data := packageOf(a.t, files...)
	path := "pool/main/" + name + ".deb"
	a.files[path] = data
	fmt.Fprintf(&a.list, "Package: %s\nFilename: %s\nSize: %d\nSHA256: %x\n%s\n", name, path, len(data), sha256.Sum256(data), fields)
}

// complete adds the packages that every image has.
func (a *archive) complete() {
	a.add("base-passwd", "Essential: yes\n", tar.Header{Typeflag: tar.TypeReg, Name: "./usr/share/base-passwd/passwd.master", Mode: 0o644, Uname: "root:*:0:0::/root:/bin/sh\n"})
	a.add("base-files", "Essential: yes\nPre-Depends: awk\n", tar.Header{Typeflag: tar.TypeDir, Name: "./bin/", Mode: 0o755},
		tar.Header{Typeflag: tar.TypeReg, Name: "./bin/su", Mode: 0o4755, Uname: "su"}, tar.Header{Typeflag: tar.TypeLink, Name: "./usr/bin/su2", Linkname: "./bin/su"})
	a.add("original-awk", "Provides: awk\n")
	a.add("mawk", "Priority: required\nProvides: awk\n")
	a.add("apt", "Depends: usrmerge | usr-is-merged, libc6 (>= 2)\n")
	a.add("ca-certificates", "")
	a.add("usrmerge", "")
	a.add("usr-is-merged", "")
	a.add("libc6", "")
	a.add("python3", "Depends: nothing | mawk\n")
	a.add("unneeded", "")
}

// sign writes the index files.
func (a *archive) sign(suite string) {
	a.t.Helper()
	var packed bytes.Buffer
	w, err := xz.NewWriter(&packed)
	if err != nil {
		a.t.Fatal(err)
	}
	if _, err := w.Write(a.list.Bytes()); err != nil {
		a.t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		a.t.Fatal(err)
	}
	for _, arch := range architectures {
		a.files["dists/bookworm/main/binary-"+arch+"/Packages.xz"] = slices.Clone(packed.Bytes())
	}
	text := "Suite: oldstable\nCodename: " + suite + "\n"
	if a.until != "" {
		text += "Valid-Until: " + a.until + "\n"
	}
	var sums strings.Builder
	for _, arch := range architectures {
		fmt.Fprintf(&sums, " %x %d main/binary-%s/Packages.xz\n", sha256.Sum256(packed.Bytes()), packed.Len(), arch)
	}
	text += "SHA256:\n" + sums.String()
	var signed bytes.Buffer
	to, err := clearsign.Encode(&signed, a.key.PrivateKey, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	if _, err := io.WriteString(to, text); err != nil {
		a.t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		a.t.Fatal(err)
	}
	a.files["dists/bookworm/InRelease"] = signed.Bytes()
}

// prepare prepares an image with python3.
func (a *archive) prepare(keyring string, include ...string) (dir string, err error) {
	a.t.Helper()
	dir = a.t.TempDir()
	return dir, Prepare(a.t.Context(), dir, Options{Mirror: a.url, Suite: "bookworm", Keyring: keyring, Include: include, Client: http.DefaultClient, Report: func(string) {}})
}

func TestPrepareSelectsPackages(t *testing.T) {
	a := newArchive(t)
	a.complete()
	a.sign("bookworm")
	dir, err := a.prepare(a.keyring(a.key), "python3")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "debs"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".deb"))
	}
	want := []string{"apt", "base-files", "base-passwd", "ca-certificates", "libc6", "mawk", "python3", "setup.sh", "usr-is-merged"}
	if !slices.Equal(names, want) {
		t.Errorf("packages: got %q, want %q", names, want)
	}
	script, err := os.ReadFile(filepath.Join(dir, "debs", "setup.sh"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"install --unpack /debs/base-files.deb /debs/base-passwd.deb /debs/mawk.deb\n",
		"install --install /debs/apt.deb /debs/ca-certificates.deb /debs/libc6.deb /debs/python3.deb /debs/usr-is-merged.deb\n",
		"printf '%s\\n' 'deb " + a.url + " bookworm main' >/etc/apt/sources.list\n",
	} {
		if !strings.Contains(string(script), text) {
			t.Errorf("the script lacks %q:\n%s", text, script)
		}
	}
	list := contents(t, filepath.Join(dir, "root.tar"))
	for name, want := range map[string]string{
		"usr/bin/su": "su 4755", "usr/bin/su2": "link to usr/bin/su", "bin": "link to usr/bin", "etc/passwd": "root:*:0:0::/root:/bin/sh\n 644",
		"usr/share/mawk": "mawk 644", "var/lib/dpkg/status": " 644", "usr/share/python3": "", "bin/su": "",
	} {
		if list[name] != want {
			t.Errorf("file %s: got %q, want %q", name, list[name], want)
		}
	}
}

// contents returns the entries of a tar, each with its content and mode.
func contents(t *testing.T, name string) map[string]string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	list := map[string]string{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := list[h.Name]; twice {
			t.Errorf("%s occurs twice in the tar", h.Name)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		list[h.Name] = fmt.Sprintf("%s %o", data, h.Mode)
		if h.Linkname != "" {
			list[h.Name] = "link to " + h.Linkname
		}
	}
}

// An attacker who controls the mirror or the connection to it cannot change the installed packages.
func TestPrepareRejectsChangedMirror(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*archive)
		code   string
	}{
		"another key":    {func(a *archive) { a.key = newKey(a.t); a.sign("bookworm") }, CodeSignature},
		"no signature":   {func(a *archive) { a.files["dists/bookworm/InRelease"] = []byte("Codename: bookworm\nSHA256:\n") }, CodeSignature},
		"a changed list": {func(a *archive) { replaceText(a, "dists/bookworm/InRelease", "oldstable", "newstable") }, CodeSignature},
		"text before": {func(a *archive) {
			prepend(a, "dists/bookworm/InRelease", "Codename: bookworm\nSHA256:\n\n")
			replaceText(a, "dists/bookworm/InRelease", "bookworm\nSHA256:\n ", "bookworm\nSHA256:\n 0")
		}, CodeSignature},
		"another suite":        {func(a *archive) { a.sign("bullseye") }, CodeSignature},
		"an old list":          {func(a *archive) { a.until = "Sat, 01 Jan 2022 00:00:00 UTC"; a.sign("bookworm") }, CodeSignature},
		"changed packages":     {func(a *archive) { a.change("Packages.xz") }, CodeIntegrity},
		"a changed file":       {func(a *archive) { a.change("mawk.deb") }, CodeIntegrity},
		"a longer file":        {func(a *archive) { a.lengthen("mawk.deb") }, CodeIntegrity},
		"a missing file":       {func(a *archive) { delete(a.files, "pool/main/mawk.deb") }, CodeMirror},
		"a missing dependency": {func(a *archive) { a.add("broken", "Essential: yes\nDepends: nothing\n"); a.sign("bookworm") }, CodePackage},
		"a package name that is a path": {func(a *archive) {
			a.list.WriteString("Package: ../x\nFilename: pool/x\nSize: 1\nSHA256: " + strings.Repeat("0", 64) + "\n\n")
			a.sign("bookworm")
		}, CodeIntegrity},
		"a path outside the archive": {func(a *archive) {
			a.list.WriteString("Package: x\nFilename: pool/../../x\nSize: 1\nSHA256: " + strings.Repeat("0", 64) + "\n\n")
			a.sign("bookworm")
		}, CodeIntegrity},
		"a package with a file outside": {func(a *archive) {
			a.add("hostile", "Essential: yes\n", tar.Header{Typeflag: tar.TypeReg, Name: "./usr/../../x", Mode: 0o644})
			a.sign("bookworm")
		}, CodeIntegrity},
		"a device": {func(a *archive) {
			a.add("hostile", "Essential: yes\n", tar.Header{Typeflag: tar.TypeChar, Name: "./dev/mem", Mode: 0o666})
			a.sign("bookworm")
		}, CodeIntegrity},
	} {
		a := newArchive(t)
		a.complete()
		a.sign("bookworm")
		keyring := a.keyring(a.key)
		c.change(a)
		if _, err := a.prepare(keyring); fault.CodeOf(err) != c.code {
			t.Errorf("%s: got error %v, want code %s", what, err, c.code)
		}
	}
}

// replaceText replaces a text in a file of the archive.
func replaceText(a *archive, name, from, to string) {
	a.t.Helper()
	changed := strings.Replace(string(a.files[name]), from, to, 1)
	if changed == string(a.files[name]) {
		a.t.Fatalf("%s has no %q", name, from)
	}
	a.files[name] = []byte(changed)
}

// prepend adds a text at the beginning of a file of the archive.
func prepend(a *archive, name, text string) {
	a.files[name] = append([]byte(text), a.files[name]...)
}

// change changes the last byte of the files whose name ends with a text.
func (a *archive) change(end string) {
	for name, data := range a.files {
		if strings.HasSuffix(name, end) {
			data[len(data)-1] ^= 1
		}
	}
}

// lengthen adds a byte to the files whose name ends with a text.
func (a *archive) lengthen(end string) {
	for name, data := range a.files {
		if strings.HasSuffix(name, end) {
			a.files[name] = append(slices.Clone(data), 'x')
		}
	}
}

func TestPrepareRejectsInvalidOptions(t *testing.T) {
	a := newArchive(t)
	a.complete()
	a.sign("bookworm")
	keyring := a.keyring(a.key)
	for what, o := range map[string]Options{
		"a suite that is a path":    {Mirror: a.url, Suite: "../x", Keyring: keyring},
		"a mirror that is a script": {Mirror: a.url + "/'; reboot; '", Suite: "bookworm", Keyring: keyring},
		"no mirror":                 {Mirror: "", Suite: "bookworm", Keyring: keyring},
		"no keyring":                {Mirror: a.url, Suite: "bookworm", Keyring: filepath.Join(t.TempDir(), "none")},
		"another kind of keyring":   {Mirror: a.url, Suite: "bookworm", Keyring: "debian_test.go"},
		"an unknown package":        {Mirror: a.url, Suite: "bookworm", Keyring: keyring, Include: []string{"no-such-package"}},
	} {
		o.Client, o.Report = http.DefaultClient, func(string) {}
		err := Prepare(context.WithoutCancel(t.Context()), t.TempDir(), o)
		if kind := fault.KindOf(err); kind != fault.Invalid && kind != fault.NotFound {
			t.Errorf("%s: Prepare: error %v", what, err)
		}
	}
}
