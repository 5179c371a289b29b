package pullthrough_test

import (
	"archive/zip"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/sumdb/note"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/gomod"
	"github.com/crannog/crannog/internal/packages/pullthrough"
)

const modText = "module example.test/a\n"

// goProxy is a module proxy with its own checksum database.
type goProxy struct {
	*registry
	key  string
	sums map[string]string // by "path@version"
}

func newGoProxy(t *testing.T) *goProxy {
	t.Helper()
	signer, verifier, err := note.GenerateKey(rand.Reader, "sum.test")
	if err != nil {
		t.Fatal(err)
	}
	p := &goProxy{registry: newRegistry(t), key: verifier, sums: map[string]string{}}
	db := sumdb.NewServer(sumdb.NewTestServer(signer, func(path, version string) ([]byte, error) {
		if lines := p.sums[path+"@"+version]; lines != "" {
			return []byte(lines), nil
		}
		return nil, errors.New("not found")
	}))
	p.handle = func(w http.ResponseWriter, r *http.Request) bool {
		rest, ok := strings.CutPrefix(r.URL.Path, "/sumdb/sum.test")
		if ok {
			r.URL.Path = rest
			db.ServeHTTP(w, r)
		}
		return ok
	}
	return p
}

// moduleZip returns the archive of a version and its sum.
func moduleZip(t *testing.T, version, body string) ([]byte, string) {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	texts := map[string]string{}
	for _, f := range []struct{ name, text string }{{"go.mod", modText}, {"a.go", body}} {
		name := "example.test/a@" + version + "/" + f.name
		w, err := z.Create(name)
		if err == nil {
			_, err = io.WriteString(w, f.text)
		}
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = f.text
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), hash1(t, texts)
}

func hash1(t *testing.T, texts map[string]string) string {
	t.Helper()
	var names []string
	for name := range texts {
		names = append(names, name)
	}
	sum, err := dirhash.Hash1(names, func(name string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(texts[name])), nil })
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// publish adds versions of example.test/a.
func (p *goProxy) publish(t *testing.T, list ...version) {
	t.Helper()
	const base = "/example.test/a/"
	var names []string
	info := ""
	for _, v := range list {
		data, sum := moduleZip(t, v.id, v.content)
		p.set(base+"@v/"+v.id+".zip", data)
		p.set(base+"@v/"+v.id+".mod", []byte(modText))
		info = fmt.Sprintf(`{"Version":%q,"Time":%q}`, v.id, time.Now().Add(-v.age).UTC().Format(time.RFC3339))
		p.set(base+"@v/"+v.id+".info", []byte(info))
		p.sums["example.test/a@"+v.id] = fmt.Sprintf("example.test/a %s %s\nexample.test/a %s/go.mod %s\n", v.id, sum, v.id, hash1(t, map[string]string{"go.mod": modText}))
		names = append(names, v.id)
	}
	p.set(base+"@v/list", []byte(strings.Join(names, "\n")+"\n"))
	p.set(base+"@latest", []byte(info))
}

func goCache(t *testing.T, p *goProxy, s *storage) *pullthrough.Cache {
	t.Helper()
	c := pullthrough.New(s, time.Now)
	c.SetProtocol(packages.Go, gomod.NewWithKey(p.key))
	return c
}

func isGo(r *pullthrough.Request) { r.Ecosystem = packages.Go }

func TestGoModuleIsVerifiedAndCached(t *testing.T) {
	p, s := newGoProxy(t), newStorage(t)
	p.publish(t, version{"v1.0.0", "package a", 90 * day})
	c := goCache(t, p, s)
	for _, ext := range []string{".info", ".mod", ".zip"} {
		text, a, err := get(t, c, p.registry, "/example.test/a/@v/v1.0.0"+ext, isGo)
		if err != nil || a.Fact.Verdict != packages.Passed || a.Fact.Version != "v1.0.0" || ext == ".mod" && text != modText {
			t.Fatalf("%s: got %q %+v (%v), want it", ext, text, a.Fact, err)
		}
		if ext == ".zip" && !strings.HasPrefix(a.Fact.Hash, "h1:") {
			t.Errorf("the entry names the digest %q, want one of the checksum database", a.Fact.Hash)
		}
	}
	// A new process and an unreachable registry: everything is stored, the database's answers too.
	before := p.total()
	c = goCache(t, p, s)
	offline := func(r *pullthrough.Request) { r.Offline = true }
	for _, path := range []string{"@v/v1.0.0.info", "@v/v1.0.0.mod", "@v/v1.0.0.zip"} {
		if _, a, err := get(t, c, p.registry, "/example.test/a/"+path, isGo, offline); err != nil || !a.Fact.Cached {
			t.Errorf("%s while offline: got %+v (%v), want it from the cache", path, a.Fact, err)
		}
	}
	if p.total() != before {
		t.Errorf("the proxy got %d further requests, want none", p.total()-before)
	}
}

func TestTamperedGoModuleIsRefused(t *testing.T) {
	p, s := newGoProxy(t), newStorage(t)
	p.publish(t, version{"v1.0.0", "package a", 90 * day})
	evil, _ := moduleZip(t, "v1.0.0", "package evil")
	p.set("/example.test/a/@v/v1.0.0.zip", evil)
	p.set("/example.test/a/@v/v1.0.0.mod", []byte("module example.test/evil\n"))
	c := goCache(t, p, s)
	// Nothing that the policy permits makes a tampered module pass.
	unverified := func(r *pullthrough.Request) { r.Unverified = func(packages.Artifact) bool { return true } }
	for _, ext := range []string{".zip", ".mod"} {
		_, _, err := get(t, c, p.registry, "/example.test/a/@v/v1.0.0"+ext, isGo, unverified)
		if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || stop.Rule != packages.RuleIntegrity {
			t.Errorf("%s: got %v, want a refusal by %s", ext, err, packages.RuleIntegrity)
		}
	}
	// A database with another key is a forged one.
	other := newGoProxy(t)
	other.publish(t, version{"v1.0.0", "package evil", 90 * day})
	forged := pullthrough.New(newStorage(t), time.Now)
	forged.SetProtocol(packages.Go, gomod.NewWithKey(p.key))
	_, _, err := get(t, forged, other.registry, "/example.test/a/@v/v1.0.0.zip", isGo, unverified)
	if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || stop.Rule != packages.RuleIntegrity {
		t.Errorf("forged database: got %v, want a refusal by %s", err, packages.RuleIntegrity)
	}
}

func TestUnknownGoModuleNeedsPermission(t *testing.T) {
	p, s := newGoProxy(t), newStorage(t)
	p.publish(t, version{"v1.0.0", "package a", 90 * day})
	clear(p.sums)
	c := goCache(t, p, s)
	const path = "/example.test/a/@v/v1.0.0.zip"
	_, _, err := get(t, c, p.registry, path, isGo)
	if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || stop.Code != "package_unverified" || !strings.Contains(stop.Reason, "packages.unverified") {
		t.Errorf("module that the database does not know: got %v, want package_unverified", err)
	}
	permit := func(r *pullthrough.Request) {
		r.Unverified = func(a packages.Artifact) bool { return a.Name == "example.test/a" }
	}
	if _, a, err := get(t, c, p.registry, path, isGo, permit); err != nil || a.Fact.Verdict != packages.Unverified {
		t.Errorf("with permission: got %+v (%v), want it as unverified", a.Fact, err)
	}
	// What another sandbox may install without verification is not served to this one.
	if _, _, err := get(t, c, p.registry, path, isGo); err == nil {
		t.Error("without permission: the stored unverified module was served")
	}
}

func TestYoungGoVersionLooksAbsent(t *testing.T) {
	p, s := newGoProxy(t), newStorage(t)
	p.publish(t, version{"v1.0.0", "package a", 90 * day}, version{"v1.1.0", "package b", day})
	c := goCache(t, p, s)
	gated := func(r *pullthrough.Request) { r.Gate, r.Dated = young, true }
	text, a, err := get(t, c, p.registry, "/example.test/a/@v/list", isGo, gated)
	if err != nil || text != "v1.0.0\n" || !slices.Equal(a.Fact.Withheld, []string{"v1.1.0"}) {
		t.Errorf("list: got %q %+v (%v), want only v1.0.0", text, a.Fact, err)
	}
	if text, _, err := get(t, c, p.registry, "/example.test/a/@latest", isGo, gated); err != nil || !strings.Contains(text, `"v1.0.0"`) {
		t.Errorf("@latest: got %q (%v), want v1.0.0", text, err)
	}
	for _, ext := range []string{".info", ".mod", ".zip"} {
		_, _, err := get(t, c, p.registry, "/example.test/a/@v/v1.1.0"+ext, isGo, gated)
		if stop, ok := errors.AsType[*pullthrough.Refusal](err); !ok || stop.Status != 404 || stop.Rule != "packages.min_age" {
			t.Errorf("%s of the young version: got %v, want a refusal with status 404", ext, err)
		}
		if _, _, err := get(t, c, p.registry, "/example.test/a/@v/v1.0.0"+ext, isGo, gated); err != nil {
			t.Errorf("%s of the old version: %v", ext, err)
		}
	}
}
