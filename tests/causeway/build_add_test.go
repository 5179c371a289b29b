package causeway_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit/provenance"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// addPolicy permits reading from the hosts of the tests of ADD.
const addPolicy = `
policy: v1
name: add
network:
  unlisted: deny
  hosts:
    - {host: files.add.test, ports: [80, 443], rules: [{do: allow}]}
    - {host: git.add.test, rules: [{do: allow}]}
git: {fetch: allow, push: {unlisted: deny}}
`

// buildText builds a Dockerfile without a context.
func buildText(t testing.TB, a *environment, tag, text string) (api.Image, error) {
	t.Helper()
	return a.client.Build(t.Context(), api.CreateBuild{Tag: tag, Dockerfile: text, Access: &api.Access{Policy: addPolicy}}, nil, nil, nil)
}

// requireInputs checks the inputs that the signed statement about a build names, with their SHA-256
// or commits.
func requireInputs(t testing.TB, a *environment, build string, want map[string]string) {
	t.Helper()
	b, err := a.client.BuildByID(t.Context(), build)
	if err != nil {
		t.Fatal(err)
	}
	key, err := a.client.ProvenanceKey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v, err := crannog.VerifyImage(crannog.ImageCheck{Envelope: b.Provenance, Key: key.Key, Digest: b.Digest})
	if err != nil || !v.OK {
		t.Fatalf("VerifyImage: got %+v, %v, want no finding", v, err)
	}
	var st provenance.ImageStatement
	if err := json.Unmarshal(v.Statement, &st); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range st.Predicate.BuildDefinition.ResolvedDependencies {
		got[r.Name+r.URI] = "unknown"
		if r.Digest != nil {
			got[r.Name+r.URI] = r.Digest.SHA256 + r.Digest.GitCommit
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("inputs of the build: got %v, want %v", got, want)
	}
}

// filesOf returns the entries of an image's layers, and the contents of its files.
func filesOf(t testing.TB, a *environment, name string) (map[string]tar.Header, map[string]string) {
	t.Helper()
	var b bytes.Buffer
	if err := a.client.ExportImage(t.Context(), name, "docker", &b); err != nil {
		t.Fatal(err)
	}
	img, err := tarball.Image(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	headers, contents := map[string]tar.Header{}, map[string]string{}
	for _, l := range layers {
		r, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		for entries := tar.NewReader(r); ; {
			h, err := entries.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(entries)
			if err != nil {
				t.Fatal(err)
			}
			name := path.Clean(h.Name)
			headers[name], contents[name] = *h, string(text)
		}
		r.Close()
	}
	return headers, contents
}

// packed returns a compressed tar with one file.
func packed(t testing.TB, name, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o640, Size: int64(len(text))})
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	if err := errors.Join(err, w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestAddFetchesURLUnderPolicy(t *testing.T) {
	need(t)
	t.Parallel()
	a := sharedEnvironment(t)
	modified := time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC)
	archive := packed(t, "in/it", "packed")
	answer := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/dir/tool":
			w.Header().Set("Last-Modified", modified.Format(http.TimeFormat))
			_, _ = io.WriteString(w, "the tool")
		case "/a.tar.gz":
			_, _ = w.Write(archive)
		case "/moved":
			http.Redirect(w, r, "https://files.add.test/dir/tool", http.StatusFound)
		case "/elsewhere":
			http.Redirect(w, r, "https://denied.add.test/x", http.StatusFound)
		case "/downgrade":
			http.Redirect(w, r, "http://files.add.test/dir/tool", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	}
	s := a.web(t, 443, answer, "files.add.test")
	plain := a.web(t, 80, answer, "files.add.test")
	denied := a.web(t, 443, answer, "denied.add.test")
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte("the tool")))
	text := "FROM scratch\nARG HOST=files.add.test\nADD https://$HOST/dir/tool /bin/\nADD --chmod=755 --chown=3:4 https://files.add.test/moved /bin/moved\n" +
		"ADD https://files.add.test/a.tar.gz /\nADD --unpack=true https://files.add.test/a.tar.gz /un\nADD --checksum=sha256:" + sum + " http://files.add.test/dir/tool /checked\n"
	var id string
	created := func(b api.Build) { id = b.ID }
	if _, err := a.client.Build(t.Context(), api.CreateBuild{Tag: "add:1", Dockerfile: text, Provenance: true, Access: &api.Access{Policy: addPolicy}}, nil, created, nil); err != nil {
		t.Fatal(err)
	}
	requireInputs(t, a, id, map[string]string{
		"https://files.add.test/dir/tool": sum, "https://files.add.test/moved": sum, "http://files.add.test/dir/tool": sum,
		"https://files.add.test/a.tar.gz": fmt.Sprintf("%x", sha256.Sum256(archive)),
	})
	headers, contents := filesOf(t, a, "add:1")
	for _, want := range []struct {
		name, text string
		mode       int64
		uid, gid   int
		at         time.Time
	}{
		{"bin/tool", "the tool", 0o600, 0, 0, modified},
		{"bin/moved", "the tool", 0o755, 3, 4, modified},
		{"a.tar.gz", string(archive), 0o600, 0, 0, time.Unix(0, 0)},
		{"un/in/it", "packed", 0o640, 0, 0, time.Time{}},
		{"checked", "the tool", 0o600, 0, 0, modified},
	} {
		h, ok := headers[want.name]
		if !ok || contents[want.name] != want.text || h.Mode != want.mode || h.Uid != want.uid || h.Gid != want.gid || !want.at.IsZero() && !h.ModTime.Equal(want.at) {
			t.Errorf("%s: got mode %o, owner %d:%d, time %v, content %.20q (exists: %v), want %+v", want.name, h.Mode, h.Uid, h.Gid, h.ModTime, contents[want.name], ok, want)
		}
	}
	// A file with a checksum is fetched once. Others are fetched for each build, to see if they
	// changed, and the same content comes from the cache.
	before, beforePlain := len(s.seen()), len(plain.seen())
	again, err := buildText(t, a, "add:2", text)
	if err != nil {
		t.Fatal(err)
	}
	if first, err := a.client.InspectImage(t.Context(), "add:1"); err != nil || first.Digest != again.Digest {
		t.Errorf("second build: got %s, want the digest %s, error %v", again.Digest, first.Digest, err)
	}
	if len(s.seen()) == before || len(plain.seen()) != beforePlain {
		t.Errorf("second build: got %d requests without a checksum and %d with one, want some and none", len(s.seen())-before, len(plain.seen())-beforePlain)
	}
	refused := map[string]struct{ add, want string }{
		"another checksum":      {"--checksum=sha256:" + strings.Repeat("0", 64) + " https://files.add.test/dir/tool /x", "has the checksum"},
		"a URL without a name":  {"https://files.add.test/ /x/", "names no file"},
		"credentials":           {"https://user:pass@files.add.test/dir/tool /x", "contains credentials"},
		"an unknown protocol":   {"ftp://files.add.test/dir/tool /x", "neither an http nor an https"},
		"a checksum of a file":  {"--checksum=sha256:" + sum + " file /x", "applies to URLs"},
		"an incomplete one":     {"--checksum=sha256:12 https://files.add.test/dir/tool /x", "not of the form"},
		"a checksum for two":    {"--checksum=sha256:" + sum + " https://files.add.test/dir/tool https://files.add.test/moved /x/", "exactly one source"},
		"SSH":                   {"git@git.add.test:acme/pay.git /x", "https only"},
		"an option as a branch": {"https://git.add.test/acme/pay.git#--upload-pack=x /x", "not a branch"},
	}
	if hosttest.Full() {
		maps.Copy(refused, map[string]struct{ add, want string }{
			"a redirection":        {"https://files.add.test/elsewhere /x", "cannot be fetched"},
			"a denied host":        {"https://denied.add.test/x /x", "cannot be fetched"},
			"a lost TLS":           {"https://files.add.test/downgrade /x", "a redirection to http"},
			"a missing file":       {"https://files.add.test/gone /x", "status 404"},
			"a loopback address":   {"http://127.0.0.1/x /x", "cannot be fetched"},
			"the metadata service": {"http://169.254.169.254/x /x", "cannot be fetched"},
		})
	}
	for what, c := range refused {
		_, err := buildText(t, a, "add:bad", "FROM scratch\nADD "+c.add+"\n")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q in the error", what, err, c.want)
		}
	}
	if n := len(denied.seen()); n != 0 {
		t.Errorf("the denied host got %d requests, want none", n)
	}
	ended, err := a.client.Builds(t.Context())
	if err != nil || slices.ContainsFunc(ended, func(b api.Build) bool { return b.State == "running" }) {
		t.Errorf("Builds: got %+v, error %v, want none that runs", ended, err)
	}
	list, err := a.client.List(t.Context(), crannog.ListOptions{})
	if err != nil || len(list) != 0 {
		t.Errorf("List: got %d sandboxes, error %v, want none", len(list), err)
	}
}

func TestAddFetchesRepositoryInSandbox(t *testing.T) {
	need(t, hosttest.Git)
	if !hosttest.Full() {
		t.Skip("part of make test-build, because it builds ten images")
	}
	t.Parallel()
	a := sharedEnvironment(t)
	bare, s := forge(t, a, "git.add.test")
	work := path.Join(path.Dir(path.Dir(bare)), "work")
	// The repository is hostile: it names programs that git would run, and a link out of the tree.
	host(t, work, "sh", "-ec", `mkdir sub && echo below >sub/file && ln -s /etc/passwd link && chmod +x README
printf '* filter=evil diff=evil\n' >.gitattributes && printf '[filter "evil"]\n\tsmudge = touch /fetched/tree/ran\n' >.gitconfig
git add . && GIT_COMMITTER_DATE=2021-01-02T03:04:05Z git -c user.name=a -c user.email=a@example.com commit -q -m second && git tag v1 && git push -q `+bare+` main v1`)
	commit := strings.TrimSpace(host(t, work, "git", "rev-parse", "HEAD"))
	first := strings.TrimSpace(host(t, work, "git", "rev-parse", "HEAD~1"))
	const repo = "https://git.add.test/acme/pay.git"
	text := "FROM scratch\nADD " + repo + " /all/\nADD --keep-git-dir=true " + repo + "#main /kept\nADD " + repo + "#v1:sub /sub\nADD " + repo + "#" + first[:10] + " /short\n" +
		"ADD --checksum=" + commit + " " + repo + "#main /pinned\n"
	var id string
	created := func(b api.Build) { id = b.ID }
	if _, err := a.client.Build(t.Context(), api.CreateBuild{Tag: "git:1", Dockerfile: text, Provenance: true, Access: &api.Access{Policy: addPolicy}}, nil, created, nil); err != nil {
		t.Fatal(err)
	}
	requireInputs(t, a, id, map[string]string{
		repo: commit, repo + "#main": commit, repo + "#v1:sub": commit, repo + "#" + first[:10]: first,
	})
	headers, contents := filesOf(t, a, "git:1")
	at := time.Date(2021, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, want := range []struct {
		name, text string
		mode       int64
	}{
		{"all/README", "a project\n", 0o755}, {"all/sub/file", "below\n", 0o644}, {"sub/file", "below\n", 0o644}, {"kept/README", "a project\n", 0o755},
		{"kept/.git/HEAD", commit + "\n", 0o644}, {"short/README", "a project\n", 0o644}, {"pinned/README", "a project\n", 0o755},
	} {
		h, ok := headers[want.name]
		if !ok || contents[want.name] != want.text || h.Mode != want.mode || h.Uid != 0 || !strings.HasPrefix(want.name, "short") && !h.ModTime.Equal(at) {
			t.Errorf("%s: got mode %o, owner %d, time %v, content %.60q (exists: %v), want %+v at %v", want.name, h.Mode, h.Uid, h.ModTime, contents[want.name], ok, want, at)
		}
	}
	if h := headers["all/link"]; h.Typeflag != tar.TypeSymlink || h.Linkname != "/etc/passwd" {
		t.Errorf("all/link: got %+v, want a link", h)
	}
	for name := range maps.Keys(headers) {
		if strings.HasPrefix(name, "all/.git/") || strings.HasPrefix(name, "short/sub") || path.Base(name) == "ran" {
			t.Errorf("the image has %s", name)
		}
	}
	// The commit decides: another build has the same image, and a pinned commit needs no request.
	again, err := buildText(t, a, "git:2", text)
	if one, inspectErr := a.client.InspectImage(t.Context(), "git:1"); err != nil || inspectErr != nil || one.Digest != again.Digest {
		t.Errorf("second build: got %s, want %s, errors %v, %v", again.Digest, one.Digest, err, inspectErr)
	}
	before := len(s.seen())
	if _, err := buildText(t, a, "git:3", "FROM scratch\nADD "+repo+"#"+commit+" /x\n"); err != nil || len(s.seen()) == before {
		t.Errorf("a commit: got %d requests, error %v, want some", len(s.seen())-before, err)
	}
	before = len(s.seen())
	if _, err := buildText(t, a, "git:4", "FROM scratch\nADD "+repo+"#"+commit+" /x\n"); err != nil || len(s.seen()) != before {
		t.Errorf("the commit again: got %d requests, error %v, want none", len(s.seen())-before, err)
	}
	refused := map[string]struct{ add, want string }{
		"another commit":         {"--checksum=" + first + " " + repo + "#v1 /x", "is the commit"},
		"a link out of the tree": {repo + "#main:link /x", "link"},
	}
	if hosttest.Full() {
		maps.Copy(refused, map[string]struct{ add, want string }{
			"a missing branch":     {repo + "#gone /x", "no branch, tag or commit"},
			"a missing directory":  {repo + "#main:gone /x", "is not in"},
			"a missing repository": {"https://git.add.test/acme/gone.git /x", "cannot be fetched"},
			"a denied host":        {"https://denied.add.test/acme/pay.git /x", "cannot be fetched"},
		})
	}
	for what, c := range refused {
		if _, err := buildText(t, a, "git:bad", "FROM scratch\nADD "+c.add+"\n"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q in the error", what, err, c.want)
		}
	}
}
