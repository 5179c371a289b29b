package content

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/packages"
)

// tgz returns a compressed tar archive. A header without a type is that of a file.
func tgz(t testing.TB, entries ...tarFile) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for _, e := range entries {
		h := e.Header
		h.Size = int64(len(e.text))
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		err := w.WriteHeader(&h)
		if err == nil {
			_, err = io.WriteString(w, e.text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

type tarFile struct {
	tar.Header
	text string
}

func file(name, text string) tarFile { return tarFile{tar.Header{Name: name}, text} }

func symlink(name, target string) tarFile {
	return tarFile{tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}, ""}
}

// zipped returns a zip archive.
func zipped(t testing.TB, entries ...zipFile) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		if e.mode != 0 {
			h.SetMode(e.mode)
		}
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = io.WriteString(w, e.text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

type zipFile struct {
	name, text string
	mode       fs.FileMode
}

func inspect(t testing.TB, form Form, data []byte) []Finding {
	t.Helper()
	found, err := Inspect(t.Context(), form, bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func codesOf(found []Finding) (out []Code) {
	for _, f := range found {
		out = append(out, f.Code)
	}
	return out
}

// check checks that exactly one kind of finding was found, or with an empty code none.
func check(t *testing.T, what string, found []Finding, want Code) {
	t.Helper()
	if got := codesOf(found); want == "" && len(got) > 0 || want != "" && !slices.Equal(got, []Code{want}) {
		t.Errorf("%s: got %v, want %q", what, found, want)
	}
}

func form(t testing.TB, e packages.Ecosystem, name, path string) Form {
	t.Helper()
	f, ok := FormOf(packages.Artifact{Ecosystem: e, Name: name}, path)
	if !ok {
		t.Fatalf("%s is not inspected", path)
	}
	return f
}

var (
	elf    = "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x03\x00" + strings.Repeat("\x00", 100)
	object = "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x01\x00" + strings.Repeat("\x00", 100)
	pe     = "MZ" + strings.Repeat("\x00", 58) + "\x40\x00\x00\x00PE\x00\x00" + strings.Repeat("\x00", 100)
	macho  = "\xcf\xfa\xed\xfe" + strings.Repeat("\x00", 100)
	fat    = "\xca\xfe\xba\xbe\x00\x00\x00\x02" + strings.Repeat("\x00", 100)
	class  = "\xca\xfe\xba\xbe\x00\x00\x00\x41" + strings.Repeat("\x00", 100)
)

func TestTarEntriesThatLeaveAreFound(t *testing.T) {
	npm := form(t, packages.NPM, "a", "/a/-/a-1.0.0.tgz")
	good := file("package/index.js", "x")
	link := func(to string) tarFile {
		return tarFile{tar.Header{Name: "package/l", Typeflag: tar.TypeLink, Linkname: to}, ""}
	}
	for what, c := range map[string]struct {
		entries []tarFile
		want    Code
	}{
		"plain files":                 {[]tarFile{good, file("./package/a/..b", "y"), {tar.Header{Name: "package/d/", Typeflag: tar.TypeDir}, ""}}, ""},
		"parent":                      {[]tarFile{good, file("package/../../evil", "x")}, Escape},
		"parent below the root":       {[]tarFile{good, file("package/../evil", "x")}, Escape},
		"parent with a backslash":     {[]tarFile{good, file(`package\..\..\evil`, "x")}, Escape},
		"absolute":                    {[]tarFile{good, file("/etc/cron.d/evil", "x")}, Escape},
		"drive":                       {[]tarFile{good, file(`C:\evil`, "x")}, Escape},
		"link inside":                 {[]tarFile{good, symlink("package/bin/a", "../index.js")}, ""},
		"link to a directory inside":  {[]tarFile{good, symlink("package/lib/a", "./..")}, ""},
		"link out":                    {[]tarFile{good, symlink("package/a", "../../etc/passwd")}, Escape},
		"link out of the package":     {[]tarFile{good, symlink("package/a", "../other/x")}, Escape},
		"absolute link":               {[]tarFile{good, symlink("package/a", "/etc/passwd")}, Escape},
		"link over another link":      {[]tarFile{good, symlink("package/s/a", ".."), symlink("package/l", "s/a/..")}, Escape},
		"entry below a link":          {[]tarFile{good, symlink("package/a", "b"), file("package/a/x/y", "x")}, Escape},
		"entry beside a link":         {[]tarFile{good, symlink("package/a", "b"), file("package/ab/x", "x")}, ""},
		"hard link inside":            {[]tarFile{good, link("package/index.js")}, ""},
		"hard link out":               {[]tarFile{good, link("../../etc/passwd")}, Escape},
		"device":                      {[]tarFile{good, {tar.Header{Name: "package/d", Typeflag: tar.TypeBlock}, ""}}, Escape},
		"pipe":                        {[]tarFile{good, {tar.Header{Name: "package/d", Typeflag: tar.TypeFifo}, ""}}, Escape},
		"setuid file":                 {[]tarFile{good, {tar.Header{Name: "package/s", Mode: 0o4755}, "x"}}, Escape},
		"directory of a shared group": {[]tarFile{good, {tar.Header{Name: "package/d/", Typeflag: tar.TypeDir, Mode: 0o2775}, ""}}, ""},
		"long name":                   {[]tarFile{good, file("package/"+strings.Repeat("n", 2000), "x")}, Unreadable},
		"deep name":                   {[]tarFile{good, file(strings.Repeat("d/", 200)+"x", "x")}, Unreadable},
		"empty":                       {nil, Unreadable},
	} {
		check(t, what, inspect(t, npm, tgz(t, c.entries...)), c.want)
	}
}

func TestZipEntriesThatLeaveAreFound(t *testing.T) {
	wheel := form(t, packages.PyPI, "a", "/packages/a-1.0-py3-none-any.whl")
	good := zipFile{"a/__init__.py", "x", 0}
	for what, c := range map[string]struct {
		entries []zipFile
		want    Code
	}{
		"plain files": {[]zipFile{good, {"a/b/", "", 0}, {"a/c.py", "y", 0o755}}, ""},
		"parent":      {[]zipFile{good, {"../evil", "x", 0}}, Escape},
		"absolute":    {[]zipFile{good, {"/etc/evil", "x", 0}}, Escape},
		"NUL":         {[]zipFile{good, {"a/x\x00.txt", "x", 0}}, Escape},
		"link inside": {[]zipFile{good, {"a/l", "__init__.py", fs.ModeSymlink | 0o777}}, ""},
		"link out":    {[]zipFile{good, {"a/l", "../../etc/passwd", fs.ModeSymlink | 0o777}}, Escape},
		"below link":  {[]zipFile{good, {"a/l", "b", fs.ModeSymlink | 0o777}, {"a/l/x", "x", 0}}, Escape},
		"setuid":      {[]zipFile{good, {"a/s", "x", fs.ModeSetuid | 0o755}}, Escape},
		"device":      {[]zipFile{good, {"a/d", "", fs.ModeDevice | 0o644}}, Escape},
		"empty":       {nil, Unreadable},
	} {
		check(t, what, inspect(t, wheel, zipped(t, c.entries...)), c.want)
	}
}

func TestNativeProgramsAreFoundWhereNoneBelong(t *testing.T) {
	const npm, module, jar = "/a/-/a-1.0.0.tgz", "/a/@v/v1.0.0.zip", "/m/a/1/a-1.jar"
	for what, c := range map[string]struct {
		ecosystem  packages.Ecosystem
		name, path string
		text       string
		want       Code
	}{
		"script":                 {packages.NPM, "a", npm, "#!/bin/sh\n", ""},
		"ELF":                    {packages.NPM, "a", npm, elf, Executable},
		"ELF in big endian":      {packages.NPM, "a", npm, strings.Replace(strings.Replace(elf, "\x02\x01", "\x02\x02", 1), "\x03\x00", "\x00\x03", 1), Executable},
		"PE":                     {packages.NPM, "a", npm, pe, Executable},
		"PE with a far header":   {packages.NPM, "a", npm, strings.Replace(pe, "\x40\x00\x00", "\x00\x20\x00", 1) + strings.Repeat("x", 9000), Executable},
		"text that begins as PE": {packages.NPM, "a", npm, "MZ " + strings.Repeat("text ", 100), ""},
		"Mach-O":                 {packages.NPM, "a", npm, macho, Executable},
		"fat Mach-O":             {packages.NPM, "a", npm, fat, Executable},
		"Java class":             {packages.NPM, "a", npm, class, ""},
		"object file":            {packages.Go, "a", module, object, ""},
		"crate":                  {packages.Crates, "a", "/crates/a/a-1.crate", elf, Executable},
		"Go module":              {packages.Go, "example.test/a", module, elf, Executable},
		"Go's toolchain":         {packages.Go, "golang.org/toolchain", module, elf, ""},
		"pure wheel":             {packages.PyPI, "a", "/p/a-1.0-py3-none-any.whl", elf, Executable},
		"wheel for a platform":   {packages.PyPI, "a", "/p/a-1.0-cp312-cp312-manylinux_2_17_x86_64.whl", elf, ""},
		"sdist":                  {packages.PyPI, "a", "/p/a-1.0.tar.gz", elf, Executable},
		"sdist as a zip":         {packages.PyPI, "a", "/p/a-1.0.zip", elf, Executable},
		"setuptools":             {packages.PyPI, "setuptools", "/p/setuptools-1.0-py3-none-any.whl", pe, ""},
		"setuptools with ELF":    {packages.PyPI, "setuptools", "/p/setuptools-1.0-py3-none-any.whl", elf, Executable},
		"jar":                    {packages.Maven, "g:a", jar, elf, ""},
	} {
		f := form(t, c.ecosystem, c.name, c.path)
		data := tgz(t, file("a/x", c.text))
		if f.archive == zipArchive {
			data = zipped(t, zipFile{"a/x", c.text, 0})
		}
		check(t, what, inspect(t, f, data), c.want)
	}
	f := form(t, packages.NPM, "a", npm)
	// Attack: a package.json that the package's own one replaces.
	declared, own := file("other/./package.json", `{"os":["linux"]}`), file("package/package.json", `{}`)
	check(t, "a replaced package.json", inspect(t, f, tgz(t, file("package/x", elf), declared, own)), Executable)
	check(t, "a package.json that replaces", inspect(t, f, tgz(t, file("package/x", elf), own, declared)), "")
	for manifest, want := range map[string]Code{
		`{"os":["linux"],"cpu":["x64"]}`: "", `{"os":"darwin"}`: "", `{"os":["!win32"]}`: Executable, `{"os":[]}`: Executable, `{"name":"a"}`: Executable, `{`: Executable,
	} {
		check(t, manifest, inspect(t, f, tgz(t, file("package/bin/x", elf), file("package/package.json", manifest))), want)
		// A package.json of something else in the package says nothing.
		check(t, "nested "+manifest, inspect(t, f, tgz(t, file("package/bin/x", elf), file("package/test/package.json", manifest))), Executable)
	}
}

// zeros returns a tar archive of a file of n zeros, of which each block compresses 1000 times.
func zeros(t *testing.T, n int64, entries int) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for i := range entries {
		err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("p/%d", i), Size: n, Mode: 0o644})
		if err == nil {
			_, err = io.CopyN(w, zeroReader{}, n)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Attack: an archive that unpacks to far more than its size fills the disk of the client that unpacks it.
func TestBombsAreFound(t *testing.T) {
	npm, wheel := form(t, packages.NPM, "a", "/a/-/a-1.0.0.tgz"), form(t, packages.PyPI, "a", "/p/a-1.0-py3-none-any.whl")
	check(t, "a large file of zeros", inspect(t, npm, zeros(t, 64<<20, 1)), Bomb)
	check(t, "a smaller one", inspect(t, npm, zeros(t, 16<<20, 1)), "")
	check(t, "many files", inspect(t, npm, zeros(t, 0, maxEntries+1)), Bomb)

	// After the end of the tar archive, clients may unpack on.
	after := append(tgz(t, file("p/a", "x")), zeros(t, 64<<20, 1)...)
	check(t, "after the end", inspect(t, npm, after), Bomb)

	// A header that announces more than the archive has is a bomb for a client that reserves the space.
	sparse := new(bytes.Buffer)
	w := tar.NewWriter(sparse)
	if err := w.WriteHeader(&tar.Header{Name: "p/a", Size: 5 << 30, Format: tar.FormatGNU}); err != nil {
		t.Fatal(err)
	}
	check(t, "an announced size", inspect(t, npm, sparse.Bytes()), Bomb)

	text := string(make([]byte, 64<<20))
	check(t, "zip", inspect(t, wheel, zipped(t, zipFile{"a", text, 0})), Bomb)
	check(t, "smaller zip", inspect(t, wheel, zipped(t, zipFile{"a", text[:16<<20], 0})), "")

	links := make([]tarFile, maxLinks+1)
	for i := range links {
		links[i] = symlink(fmt.Sprintf("p/%d", i), "x")
	}
	check(t, "many links", inspect(t, npm, tgz(t, links...)), Bomb)
	check(t, "fewer links", inspect(t, npm, tgz(t, links[:maxLinks]...)), "")
}

// rawZip returns a zip archive of stored entries, whose directory is written by hand: for each entry
// the number of its local header, and the size that the directory states.
func rawZip(contents []string, directory [][2]int) []byte {
	var out bytes.Buffer
	le := binary.LittleEndian
	var offsets []uint32
	header := func(sum, size uint32) []byte {
		var b []byte
		b = le.AppendUint16(b, 20) // version
		b = append(b, make([]byte, 2+2+2+2)...)
		b = le.AppendUint32(b, sum)
		b = le.AppendUint32(b, size)
		b = le.AppendUint32(b, size)
		b = le.AppendUint16(b, 1) // length of the name
		return le.AppendUint16(b, 0)
	}
	for n, c := range contents {
		offsets = append(offsets, uint32(out.Len()))
		out.WriteString("PK\x03\x04")
		out.Write(header(crc32.ChecksumIEEE([]byte(c)), uint32(len(c))))
		out.WriteString(string(rune('a' + n)))
		out.WriteString(c)
	}
	start := out.Len()
	for n, d := range directory {
		out.WriteString("PK\x01\x02\x14\x00")
		out.Write(header(crc32.ChecksumIEEE([]byte(contents[d[0]])), uint32(d[1])))
		out.Write(make([]byte, 2+2+2+4))
		out.Write(le.AppendUint32(nil, offsets[d[0]]))
		out.WriteString(string(rune('a' + n)))
	}
	size := out.Len() - start
	out.WriteString("PK\x05\x06\x00\x00\x00\x00")
	out.Write(le.AppendUint16(nil, uint16(len(directory))))
	out.Write(le.AppendUint16(nil, uint16(len(directory))))
	out.Write(le.AppendUint32(nil, uint32(size)))
	out.Write(le.AppendUint32(nil, uint32(start)))
	out.Write([]byte{0, 0})
	return out.Bytes()
}

func TestZipDirectoriesThatLieAreFound(t *testing.T) {
	wheel := form(t, packages.PyPI, "a", "/p/a-1.0-py3-none-any.whl")
	two := []string{"one", "second"}
	check(t, "a true directory", inspect(t, wheel, rawZip(two, [][2]int{{0, 3}, {1, 6}})), "")
	check(t, "two entries with one content", inspect(t, wheel, rawZip(two, [][2]int{{0, 3}, {0, 3}})), Bomb)
	check(t, "an entry over the next one", inspect(t, wheel, rawZip(two, [][2]int{{0, 20}, {1, 6}})), Bomb)
	check(t, "an entry larger than the file", inspect(t, wheel, rawZip(two, [][2]int{{0, 3}, {1, 1 << 20}})), Bomb)
	check(t, "a wrong checksum", inspect(t, wheel, rawZip(two, [][2]int{{0, 3}, {1, 5}})), Unreadable)

	data := zipped(t, zipFile{"a", strings.Repeat("text", 1000), 0})
	at := bytes.Index(data, []byte("PK\x01\x02"))
	smaller := slices.Clone(data)
	binary.LittleEndian.PutUint32(smaller[at+24:], 10)
	check(t, "a smaller size than the content's", inspect(t, wheel, smaller), Bomb)
	larger := slices.Clone(data)
	binary.LittleEndian.PutUint32(larger[at+24:], 5000)
	check(t, "a larger size than the content's", inspect(t, wheel, larger), Unreadable)
	encrypted := slices.Clone(data)
	encrypted[at+8] |= 1
	check(t, "an encrypted entry", inspect(t, wheel, encrypted), Unreadable)

	// A directory that would take much memory is not read.
	many := bytes.Repeat([]byte("PK\x01\x02"+strings.Repeat("\x00", 42)), maxDirectory/46+1)
	end := binary.LittleEndian.AppendUint32([]byte("PK\x05\x06\x00\x00\x00\x00\xff\xfe\xff\xfe"), uint32(len(many)))
	many = append(append(many, end...), 0, 0, 0, 0, 0, 0)
	check(t, "a large directory", inspect(t, wheel, many), Bomb)
}

func TestWhatCannotBeInspectedIsAFinding(t *testing.T) {
	npm, wheel := form(t, packages.NPM, "a", "/a/-/a-1.0.0.tgz"), form(t, packages.PyPI, "a", "/p/a-1.0-py3-none-any.whl")
	pack := tgz(t, file("p/a", strings.Repeat("a text that is not short", 5000)), file("p/b", "b"))
	wheelFile := zipped(t, zipFile{"a", "text", 0})
	var plain bytes.Buffer
	z, err := gzip.NewReader(bytes.NewReader(pack))
	if err == nil {
		_, err = io.Copy(&plain, z)
	}
	if err != nil {
		t.Fatal(err)
	}
	check(t, "whole", inspect(t, npm, pack), "")
	check(t, "not compressed", inspect(t, npm, plain.Bytes()), "")
	check(t, "truncated", inspect(t, npm, pack[:len(pack)/2]), Unreadable)
	check(t, "garbage", inspect(t, npm, []byte(strings.Repeat("garbage ", 200))), Unreadable)
	check(t, "nothing", inspect(t, npm, nil), Unreadable)
	check(t, "xz", inspect(t, npm, append([]byte("\xfd7zXZ\x00"), make([]byte, 600)...)), Unreadable)
	check(t, "tar with a zip at its end", inspect(t, npm, append(slices.Clone(pack), wheelFile...)), Unreadable)
	check(t, "whole zip", inspect(t, wheel, wheelFile), "")
	check(t, "truncated zip", inspect(t, wheel, wheelFile[:len(wheelFile)-10]), Unreadable)
	check(t, "zip of garbage", inspect(t, wheel, []byte("PK\x03\x04 garbage")), Unreadable)
	check(t, "another ending", inspect(t, form(t, packages.PyPI, "a", "/p/a-1.0.tar.xz"), pack), Unreadable)
}

// Errors that are not about the archive are no findings, because findings are remembered.
func TestErrorsOfReadingAreNoFindings(t *testing.T) {
	data := tgz(t, file("p/a", "x"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if found, err := Inspect(ctx, form(t, packages.NPM, "a", "/a"), bytes.NewReader(data), int64(len(data))); !errors.Is(err, context.Canceled) || found != nil {
		t.Errorf("cancelled: got %v, %v", found, err)
	}
	for _, f := range []Form{{archive: tarArchive}, {archive: zipArchive}} {
		if found, err := Inspect(t.Context(), f, brokenFile{}, 1000); !errors.Is(err, errBroken) || found != nil {
			t.Errorf("a broken disk: got %v, %v", found, err)
		}
	}
}

var errBroken = errors.New("broken")

type brokenFile struct{}

func (brokenFile) ReadAt([]byte, int64) (int, error) { return 0, errBroken }

// Names in findings come from the archive, and are shown to people.
func TestFindingsAreShortAndPrintable(t *testing.T) {
	var entries []tarFile
	for i := range 10 {
		entries = append(entries, file(fmt.Sprintf("/%d\x1b[31m\n%s", i, strings.Repeat("ü", 300)), "x"))
	}
	found := inspect(t, form(t, packages.NPM, "a", "/a"), tgz(t, entries...))
	check(t, "many entries", found, Escape)
	text := found[0].String()
	if len(text) > 700 || found[0].More != 7 || !strings.HasSuffix(text, " and 7 more)") || strings.ContainsAny(text, "\x1b\nü") {
		t.Errorf("got %q", text)
	}
}

func TestFilesWithoutArchivesAreNotInspected(t *testing.T) {
	for path, e := range map[string]packages.Ecosystem{
		"/p/a-1.0-py3-none-any.whl.metadata": packages.PyPI, "/a/@v/v1.0.0.mod": packages.Go, "/m/a/1/a-1.pom": packages.Maven,
		"/m/a/1/a-1.jar.asc": packages.Maven, "/pool/a_1_amd64.deb": packages.Apt, "/v2/a/blobs/x": packages.OCI,
	} {
		if f, ok := FormOf(packages.Artifact{Ecosystem: e, Name: "a"}, path); ok {
			t.Errorf("%s is inspected as %+v", path, f)
		}
	}
	if f, ok := FormOf(packages.Artifact{Ecosystem: packages.Maven, Name: "g:a"}, "/m/a/1/a-1.j%61r"); !ok || f.archive != zipArchive {
		t.Errorf("an escaped path: got %+v, %v", f, ok)
	}
}

func FuzzInspect(f *testing.F) {
	f.Add(uint8(0), tgz(f, file("package/package.json", `{"os":["linux"]}`), symlink("package/a", "../b"), file("/x", elf)))
	f.Add(uint8(1), zipped(f, zipFile{"../a", pe, 0}, zipFile{"l", "..", fs.ModeSymlink}))
	f.Add(uint8(1), rawZip([]string{"one", "two"}, [][2]int{{0, 20}, {1, 3}}))
	f.Add(uint8(2), []byte("x"))
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		form := []Form{{archive: tarArchive, manifest: true}, {archive: zipArchive}, {}}[int(kind)%3]
		found, err := Inspect(t.Context(), form, bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		again := inspect(t, form, data)
		for n, one := range found {
			text := one.String()
			if len(text) > 700 || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) || text != again[n].String() {
				t.Errorf("the finding %q is long, not printable, or another the second time: %q", text, again[n])
			}
		}
	})
}
