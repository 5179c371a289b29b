package sbom_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/sbom"
)

type file struct {
	name, text string
	mode       int64
}

// tree returns a tar of files.
func tree(t testing.TB, files ...file) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		if f.mode == 0 {
			f.mode = 0o644
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f.text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// self returns this test program, which is written in Go.
func self(t testing.TB) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var files = []file{
	{name: "etc/os-release", text: "NAME=\"Some Debian\"\nID=debian\n"},
	{name: "var/lib/dpkg/status", text: "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.36-9+deb12u4\nDescription: a library\n with more: text\n\n" +
		"Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n\nPackage: held\nStatus: hold ok installed\nVersion: 1:2\n"},
	{name: "var/lib/dpkg/status.d/base", text: "Package: base-files\nVersion: 12\nArchitecture: all\n"},
	{name: "lib/apk/db/installed", text: "C:Q1\nP:musl\nV:1.2.4-r2\nA:x86_64\n\nP:busybox\nV:1.36\n"},
	{name: "usr/lib/node_modules/left-pad/package.json", text: `{"name":"left-pad","version":"1.3.0"}`},
	{name: "app/node_modules/@scope/x/package.json", text: `{"name":"@scope/x","version":"2.0.0"}`},
	{name: "app/node_modules/left-pad/package.json", text: `{"name":"left-pad","version":"1.3.0"}`},
	{name: "app/package.json", text: `{"name":"own","version":"1"}`},
	{name: "app/node_modules/x/dist/package.json", text: `{"type":"module"}`},
	{name: "srv/package-lock.json", text: `{"name":"srv","version":"9","lockfileVersion":3,"packages":{"":{"name":"srv","version":"9","dependencies":{"ms":"^2"}},` +
		`"node_modules/ms":{"version":"2.1.3"},"node_modules/a/node_modules/@s/deep":{"version":"4.0.0"},"node_modules/other":{"name":"aliased","version":"5.0.0"},` +
		`"node_modules/tests-only":{"version":"1.0.0","dev":true},"node_modules/part":{"link":true,"resolved":"part"},"part":{"name":"part","version":"3.0.0"},"node_modules/left-pad":{"version":"1.3.0"}}}`},
	{name: "old/npm-shrinkwrap.json", text: `{"lockfileVersion":1,"dependencies":{"outer":{"version":"1.0.1","dependencies":{"inner":{"version":"1.0.2"}}},"dev":{"version":"1.0.0","dev":true},` +
		`"nick":{"version":"npm:@s/real@1.0.3"},"local":{"version":"file:../x"}}}`},
	{name: "srv/node_modules/.package-lock.json", text: `{"lockfileVersion":2,"packages":{"node_modules/hidden":{"version":"7.0.0"}},"dependencies":{"hidden":{"version":"7.0.0"}}}`},
	{name: "srv/.package-lock.json", text: `{"lockfileVersion":3,"packages":{"node_modules/unread":{"version":"1.0.0"}}}`},
	{name: "usr/lib/python3/dist-packages/Some_Thing-1.0.dist-info/METADATA", text: "Metadata-Version: 2.1\nName: Some_Thing\nVersion: 1.0\n\nName: not this\n"},
	{name: "usr/lib/python3/dist-packages/old.egg-info/PKG-INFO", text: "Name: old\nVersion: 0.1\n"},
	{name: "bin/script", text: "#!/bin/sh\n", mode: 0o755},
}

func TestScanFindsPackages(t *testing.T) {
	list, err := sbom.Scan(t.Context(), tree(t, append(slices.Clone(files), file{"bin/program", self(t), 0o755})...))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range list.Packages {
		if p.Kind != sbom.Golang || p.Name == "stdlib" {
			got = append(got, p.URL(list.Distro))
		}
	}
	want := []string{
		"pkg:apk/debian/busybox@1.36", "pkg:apk/debian/musl@1.2.4-r2?arch=x86_64",
		"pkg:deb/debian/base-files@12?arch=all", "pkg:deb/debian/held@1:2", "pkg:deb/debian/libc6@2.36-9+deb12u4?arch=amd64",
		"pkg:golang/stdlib@" + strings.TrimPrefix(runtime.Version(), "go"),
		"pkg:npm/%40s/deep@4.0.0", "pkg:npm/%40s/real@1.0.3", "pkg:npm/%40scope/x@2.0.0", "pkg:npm/aliased@5.0.0", "pkg:npm/hidden@7.0.0",
		"pkg:npm/inner@1.0.2", "pkg:npm/left-pad@1.3.0", "pkg:npm/ms@2.1.3", "pkg:npm/outer@1.0.1", "pkg:pypi/some-thing@1.0", "pkg:pypi/old@0.1",
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || list.Unread != 0 {
		t.Errorf("Scan: got %d unread and\n%s\nwant\n%s", list.Unread, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !slices.ContainsFunc(list.Packages, func(p sbom.Package) bool {
		return p.Kind == sbom.Golang && p.Found == "bin/program" && p.Name == "github.com/crannog/crannog"
	}) {
		t.Error("the module of the Go program is missing")
	}
}

// The files of an image are hostile: they have texts for a terminal, are damaged, or name more
// packages than there are.
func TestScanBoundsHostileFiles(t *testing.T) {
	damaged := []byte(self(t)[:1<<20])
	for i := 64; i < len(damaged); i += 97 {
		damaged[i] ^= 0xff
	}
	list, err := sbom.Scan(t.Context(), tree(t,
		file{name: "var/lib/dpkg/status", text: "Package: a\x1b[2J\nVersion: 1\n\nPackage: " + strings.Repeat("x", 1000) + "\nVersion: 1\n\nPackage: fine\nVersion: 1\n"},
		file{name: "node_modules/a/package.json", text: "{"},
		file{name: "new/package-lock.json", text: `{"lockfileVersion":4}`},
		file{name: "deep/package-lock.json", text: `{"lockfileVersion":1,"dependencies":` + strings.Repeat(`{"a":{"dependencies":`, 10_000) + "{}" + strings.Repeat("}}", 10_000) + "}"},
		file{name: "node_modules/b/package.json", text: `{"name":"b","version":"1"}` + strings.Repeat(" ", 5<<20)},
		file{name: "x.dist-info/METADATA", text: "\n\nName: late\n"},
		file{name: "bin/damaged", text: string(damaged), mode: 0o755},
		file{name: "bin/short", text: "\x7fELF", mode: 0o755},
	))
	if err != nil || len(list.Packages) != 1 || list.Packages[0].Name != "fine" || list.Unread < 5 {
		t.Errorf("Scan: got %+v, error %v, want the package fine and at least 5 unread files", list, err)
	}
	var many strings.Builder
	for i := range 200_001 {
		fmt.Fprintf(&many, "P:p%d\nV:1\n\n", i)
	}
	if _, err := sbom.Scan(t.Context(), tree(t, file{name: "lib/apk/db/installed", text: many.String()})); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("Scan of too many packages: got %v, want Exhausted", err)
	}
}

func TestWriteIsValidAndReproducible(t *testing.T) {
	of := sbom.Subject{Name: "app:1", Digest: "sha256:" + strings.Repeat("ab", 32), Created: time.Unix(1_600_000_000, 0)}
	for format, fields := range map[string][]string{
		sbom.SPDX:      {`"spdxVersion": "SPDX-2.3"`, `"dataLicense": "CC0-1.0"`, `"relationshipType": "DESCRIBES"`, `"referenceLocator": "pkg:npm/left-pad@1.3.0"`, `"created": "2020-09-13T12:26:40Z"`},
		sbom.CycloneDX: {`"bomFormat": "CycloneDX"`, `"specVersion": "1.5"`, `"purl": "pkg:npm/left-pad@1.3.0"`, `"timestamp": "2020-09-13T12:26:40Z"`},
	} {
		var outputs []string
		for range 2 {
			list, err := sbom.Scan(t.Context(), tree(t, files...))
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := sbom.Write(&b, format, of, list); err != nil || !json.Valid(b.Bytes()) {
				t.Fatalf("Write as %s: got %s, error %v", format, b.String(), err)
			}
			outputs = append(outputs, b.String())
		}
		for _, f := range fields {
			if !strings.Contains(outputs[0], f) {
				t.Errorf("the document in %s lacks %s", format, f)
			}
		}
		if outputs[0] != outputs[1] {
			t.Errorf("two documents in %s of the same files differ", format)
		}
	}
	if err := sbom.Write(&bytes.Buffer{}, "other", of, sbom.List{}); fault.KindOf(err) != fault.Invalid {
		t.Errorf("Write in an unknown format: got %v, want Invalid", err)
	}
}

// FuzzScan checks that no file of an image ends the program, or puts control characters into a
// document.
func FuzzScan(f *testing.F) {
	for _, one := range files {
		f.Add(one.name, one.text)
	}
	f.Add("bin/x", "\x7fELF\x02\x01\x01")
	f.Fuzz(func(t *testing.T, name, text string) {
		if len(name) > 1000 || strings.ContainsRune(name, 0) {
			return
		}
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(text))}) != nil {
			return
		}
		_, _ = w.Write([]byte(text))
		_ = w.Close()
		list, err := sbom.Scan(t.Context(), &b)
		if err != nil {
			return
		}
		for _, p := range list.Packages {
			if p.Name == "" || strings.ContainsAny(p.Name+p.Version+p.Arch+p.URL(list.Distro), "\n\x1b\x00") {
				t.Errorf("Scan of %q: got %+v", name, p)
			}
		}
	})
}
