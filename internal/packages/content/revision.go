package content

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"runtime"
	"strings"
	"sync"
)

// sources are what a finding depends on besides the archive.
//
//go:embed content.go entry.go form.go native.go tar.go zip.go
var sources embed.FS

// Revision identifies this program's inspection. It changes with the code, and with the version of
// Go whose libraries read archives, so a stored result never outlives the code that found it.
var Revision = sync.OnceValue(func() string {
	sum := sha256.New()
	err := fs.WalkDir(sources, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := sources.ReadFile(path)
		sum.Write(text)
		return err
	})
	if err != nil {
		panic(err) // the files are in the program
	}
	sum.Write([]byte(runtime.Version()))
	return hex.EncodeToString(sum.Sum(nil)[:16])
})

// Key identifies a form in stored results.
func (f Form) Key() string {
	parts := []string{[...]string{unknownArchive: "unknown", tarArchive: "tar", zipArchive: "zip"}[f.archive]}
	for _, c := range []struct {
		set  bool
		name string
	}{{f.native, "native"}, {f.launchers, "launchers"}, {f.manifest, "manifest"}} {
		if c.set {
			parts = append(parts, c.name)
		}
	}
	return strings.Join(parts, ",")
}

// Valid reports whether a finding could be one of Inspect, for results that were stored.
func (f Finding) Valid() bool {
	if _, ok := sentences[f.Code]; !ok || f.Code == LookAlike || len(f.Details) == 0 || len(f.Details) > maxDetails || f.More < 0 || f.More > maxEntries*maxDetails {
		return false
	}
	for _, d := range f.Details {
		if len(d) > 2*maxPath+maxDetail {
			return false
		}
	}
	return true
}

// maxDetail limits what a detail says besides the name of an entry.
const maxDetail = 200
