package v1

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	imagespec "github.com/google/go-containerregistry/pkg/v1"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/library"
	imageregistry "github.com/crannog/crannog/internal/image/registry"
	"github.com/crannog/crannog/internal/image/root"
	"github.com/crannog/crannog/internal/sandbox"
)

// imageStore is a library of one image. It records the requested changes.
type imageStore struct {
	changes []string
	failure error // outcome of a transfer
}

func digest(letter string) imagespec.Hash {
	return imagespec.Hash{Algorithm: "sha256", Hex: strings.Repeat(letter, 64)}
}

func debian() library.Image {
	return library.Image{
		Name: "docker.io/library/debian:13", Digest: digest("a"), Resolved: digest("b"), Source: "index.docker.io", Platform: "linux/amd64", Bytes: 7,
		Added: time.Unix(10, 0).UTC(), Created: time.Unix(5, 0).UTC(), Root: &root.Root{Bytes: 9, Skipped: 2},
		Config: imagespec.Config{User: "me", Cmd: []string{"bash"}, WorkingDir: "/w", Labels: map[string]string{"k": "v"}},
		Layers: []imagespec.Descriptor{{Digest: digest("c"), Size: 3, MediaType: "application/x-layer"}},
	}
}

func (s *imageStore) List() ([]library.Image, error) {
	return []library.Image{debian(), {Name: "raw", Digest: digest("d")}}, nil
}

func (s *imageStore) Inspect(ref string) (library.Image, error) {
	if ref != "debian:13" {
		return library.Image{}, fault.Newf(fault.NotFound, "image_not_found", "there is no image %s", ref)
	}
	return debian(), nil
}

func (s *imageStore) Remove(_ context.Context, _ sandbox.Principal, ref string) ([]string, error) {
	s.changes = append(s.changes, "remove "+ref)
	return nil, s.failure
}

func (s *imageStore) Prune(context.Context, sandbox.Principal) (library.Pruned, error) {
	s.changes = append(s.changes, "prune")
	return library.Pruned{Blobs: 1, Roots: 2, Bytes: 3}, s.failure
}

func (s *imageStore) Pull(_ context.Context, _ sandbox.Principal, ref, platform string, report func(library.Progress)) (library.Image, error) {
	s.changes = append(s.changes, "pull "+ref+" "+platform)
	for done := range int64(1001) { // more steps than a person can see
		report(library.Progress{Stage: "pull", Digest: "x", Done: done, Total: 1000})
	}
	report(library.Progress{Stage: "pull", Digest: "y", Done: 5, Total: 5, Present: true})
	return debian(), s.failure
}

func (s *imageStore) Push(_ context.Context, _ sandbox.Principal, ref, to string, _ func(library.Progress)) error {
	s.changes = append(s.changes, "push "+ref+" "+to)
	return s.failure
}

func (s *imageStore) Attach(_ context.Context, _ sandbox.Principal, ref, to, path, mediaType string) (imagespec.Hash, error) {
	s.changes = append(s.changes, "attach "+ref+" "+to+" "+path+" "+mediaType)
	return digest("d"), s.failure
}

func (s *imageStore) Attached(_ context.Context, ref, from string) ([]imageregistry.Attached, error) {
	s.changes = append(s.changes, "attached "+ref+" "+from)
	return []imageregistry.Attached{{Digest: digest("d"), Type: "a/b", Subject: digest("e")}}, s.failure
}

func (s *imageStore) ReadAttached(_ context.Context, ref, from, which string) ([]byte, error) {
	s.changes = append(s.changes, "fetch "+ref+" "+from+" "+which)
	return []byte("the file"), s.failure
}

func (s *imageStore) Import(_ context.Context, _ sandbox.Principal, from, as, _ string, _ func(library.Progress)) ([]library.Image, error) {
	s.changes = append(s.changes, "import "+from+" "+as)
	return []library.Image{debian()}, s.failure
}

func (s *imageStore) Export(_ context.Context, ref, format string, w io.Writer) error {
	s.changes = append(s.changes, "export "+ref+" "+format)
	if _, err := io.WriteString(w, "the tar"); err != nil {
		return err
	}
	return s.failure
}

func (r *rig) withImages(s *imageStore, caller sandbox.Principal) *rig {
	r.deps.Images, r.deps.ImageTransfer, r.caller = s, s, caller
	return r.with(r.deps)
}

// raw makes a request whose answer is not one JSON object.
func (r *rig) raw(method, path, body string) *httptest.ResponseRecorder {
	r.t.Helper()
	req := httptest.NewRequestWithContext(r.t.Context(), method, path, strings.NewReader(body))
	req.Header.Set("X-Api-Key", secret)
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, req)
	return w
}

func TestListImages(t *testing.T) {
	r := newRig(t).withImages(&imageStore{}, sandbox.Principal{KeyID: "k1"})
	var list api.ImageList
	if code, _ := r.call("GET", "/v1/images", "", &list); code != 200 || len(list.Images) != 2 {
		t.Fatalf("GET /v1/images: got %d %+v", code, list)
	}
	a, b := list.Images[0], list.Images[1]
	if a.Name != debian().Name || a.Digest != digest("a").String() || a.Resolved != digest("b").String() || a.Unpacked != 9 || a.LeftOut != 2 || a.Config != nil {
		t.Errorf("first image: got %+v", a)
	}
	if b.Resolved != "" || b.Unpacked != 0 || b.MadeAt != nil {
		t.Errorf("an image without these fields has %+v", b)
	}
	var img api.Image
	if code, _ := r.call("GET", "/v1/images/inspect?image=debian:13", "", &img); code != 200 || img.Config == nil || img.Config.User != "me" || img.Config.WorkingDir != "/w" ||
		!slices.Equal(img.Layers, []api.ImageLayer{{Digest: digest("c").String(), Bytes: 3, Type: "application/x-layer"}}) {
		t.Errorf("GET /v1/images/inspect: got %d %+v", code, img)
	}
	if code, p := r.call("GET", "/v1/images/inspect?image=none", "", nil); code != 404 || p.Code != "image_not_found" {
		t.Errorf("GET /v1/images/inspect: got %d %+v", code, p)
	}
}

// Changes of images use this user's disk and credentials for registries: a key may not make them,
// and neither may a browser.
func TestOnlyLocalCallersChangeImages(t *testing.T) {
	calls := [][3]string{
		{"DELETE", "/v1/images?image=debian:13", ""}, {"POST", "/v1/images/prune", ""}, {"POST", "/v1/images/pull", `{"image":"debian:13"}`},
		{"POST", "/v1/images/push", `{"image":"debian:13"}`}, {"POST", "/v1/images/attach", `{"image":"debian:13","path":"/f","type":"a/b"}`},
		{"GET", "/v1/images/attached?image=debian:13&from=r/x", ""}, {"GET", "/v1/images/attached/file?image=debian:13&file=a/b", ""}, {"POST", "/v1/images/import", `{"path":"/f"}`}, {"GET", "/v1/images/archive?image=debian:13", ""},
	}
	for name, caller := range map[string]sandbox.Principal{"a key": {KeyID: "k1"}, "a browser": {Local: true, Session: "s1"}} {
		s := &imageStore{}
		r := newRig(t).withImages(s, caller)
		for _, c := range calls {
			if code, p := r.call(c[0], c[1], c[2], nil); code != http.StatusForbidden || p.Kind == "" || len(s.changes) > 0 {
				t.Errorf("%s: %v: %d %+v %v", name, c, code, p, s.changes)
			}
		}
	}
	s := &imageStore{}
	r := newRig(t).withImages(s, sandbox.Principal{Local: true})
	for _, c := range calls {
		if w := r.raw(c[0], c[1], c[2]); w.Code != 200 {
			t.Errorf("the user: %v: %d %s", c, w.Code, w.Body)
		}
	}
	want := []string{"remove debian:13", "prune", "pull debian:13 ", "push debian:13 ", "attach debian:13  /f a/b", "attached debian:13 r/x", "fetch debian:13  a/b", "import /f ", "export debian:13 "}
	if !slices.Equal(s.changes, want) {
		t.Errorf("changes: got %q", s.changes)
	}
}

// Files of a registry are bytes of an unknown author, which no browser may show.
func TestFilesAttachedToImages(t *testing.T) {
	s := &imageStore{}
	r := newRig(t).withImages(s, sandbox.Principal{Local: true})
	var list api.AttachedFiles
	if code, _ := r.call("GET", "/v1/images/attached?image=debian:13", "", &list); code != 200 ||
		!slices.Equal(list.Files, []api.ListedFile{{Digest: digest("d").String(), Type: "a/b", Subject: digest("e").String()}}) {
		t.Errorf("GET /v1/images/attached: got %d %+v", code, list)
	}
	w := r.raw("GET", "/v1/images/attached/file?image=debian:13&file=a/b", "")
	if w.Code != 200 || w.Body.String() != "the file" || w.Header().Get("Content-Type") != "application/octet-stream" {
		t.Errorf("GET /v1/images/attached/file: got %d %q, headers %v", w.Code, w.Body, w.Header())
	}
	if code, p := r.call("GET", "/v1/images/attached/file?image=debian:13", "", nil); code != 400 && code != 422 || p.Kind == "" {
		t.Errorf("GET /v1/images/attached/file without a file: got %d %+v", code, p)
	}
}

// Progress is sent as lines: the first and last step of each blob, few between them, then the
// outcome.
func TestImageProgress(t *testing.T) {
	s := &imageStore{}
	r := newRig(t).withImages(s, sandbox.Principal{Local: true})
	w := r.raw("POST", "/v1/images/pull", `{"image":"debian:13","platform":"linux/arm64"}`)
	lines := strings.Split(strings.TrimSpace(w.Body.String()), "\n")
	if w.Header().Get("Content-Type") != "application/x-ndjson" || len(lines) < 4 || len(lines) > 500 {
		t.Fatalf("%v: %d lines", w.Header(), len(lines))
	}
	for at, want := range map[int]string{
		0: `{"stage":"pull","digest":"x","total_bytes":1000}`, len(lines) - 3: `{"stage":"pull","digest":"x","done_bytes":1000,"total_bytes":1000}`,
		len(lines) - 2: `{"stage":"pull","digest":"y","done_bytes":5,"total_bytes":5,"present":true}`,
	} {
		if lines[at] != want {
			t.Errorf("line %d is %s", at, lines[at])
		}
	}
	if last := lines[len(lines)-1]; !strings.Contains(last, `"finished":true`) || !strings.Contains(last, debian().Name) {
		t.Errorf("the last line is %s", last)
	}
	for name, c := range map[string]struct {
		err  error
		want string
		log  bool
	}{
		"a known error":    {fault.New(fault.Denied, "registry_denied", "the registry wants a login").WithHint("log in"), `"hint":"log in"`, false},
		"an unknown error": {errors.New("secret detail"), `"finished":true,"problem"`, true},
	} {
		s.failure = c.err
		r.log.Reset()
		w := r.raw("POST", "/v1/images/push", `{"image":"debian:13","to":"r.test/x"}`)
		if w.Code != 200 || !strings.Contains(w.Body.String(), c.want) || strings.Contains(w.Body.String(), "secret detail") || strings.Contains(r.log.String(), "secret detail") != c.log {
			t.Errorf("%s: %d %s, log %s", name, w.Code, w.Body, r.log)
		}
	}
}

func TestImageExport(t *testing.T) {
	s := &imageStore{}
	r := newRig(t).withImages(s, sandbox.Principal{Local: true})
	if w := r.raw("GET", "/v1/images/archive?image=debian:13&format=docker", ""); w.Code != 200 || w.Body.String() != "the tar" || w.Header().Get("Content-Type") != "application/x-tar" {
		t.Errorf("GET /v1/images/archive: got %d %s %v", w.Code, w.Body, w.Header())
	}
	for path, want := range map[string]int{"image=none": 404, "image=debian:13&format=zip": 400, "format=oci": 400} {
		if w := r.raw("GET", "/v1/images/archive?"+path, ""); w.Code != want || len(s.changes) > 1 {
			t.Errorf("%s: %d %s, %v", path, w.Code, w.Body, s.changes)
		}
	}
	// A part of a tar must not be taken for all of it.
	s.failure = errors.New("the disk fails")
	defer func() {
		if got := recover(); got != http.ErrAbortHandler { //nolint:errorlint // the server compares it like this
			t.Errorf("the answer ended as if it were complete: %v", got)
		}
	}()
	r.raw("GET", "/v1/images/archive?image=debian:13", "")
}
