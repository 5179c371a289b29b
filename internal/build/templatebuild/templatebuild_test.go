package templatebuild_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/crannog/crannog/internal/audit/audittest"
	"github.com/crannog/crannog/internal/build"
	"github.com/crannog/crannog/internal/build/solve"
	"github.com/crannog/crannog/internal/build/templatebuild"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/catalog"
	"github.com/crannog/crannog/internal/image/imagetest"
	"github.com/crannog/crannog/internal/image/library"
	"github.com/crannog/crannog/internal/image/registry"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
)

var (
	alice = sandbox.Principal{KeyID: "alice"}
	bob   = sandbox.Principal{KeyID: "bob"}
)

// fakeSandboxes is a sandbox service without sandboxes. The command "fail" exits with 3, "wait"
// runs until it is canceled, and all others print a line and change nothing.
type fakeSandboxes struct {
	mu      sync.Mutex
	ran     []solve.Command
	cleaned []string
	waits   chan struct{}
}

func (s *fakeSandboxes) Runner(sandbox.Principal, string, sandbox.Access, sandbox.Limits) solve.Runner {
	return s
}

func (s *fakeSandboxes) Clean(_ context.Context, id string) error {
	s.cleaned = append(s.cleaned, id)
	return nil
}

func (s *fakeSandboxes) Run(ctx context.Context, c solve.Command) (int, error) {
	s.mu.Lock()
	s.ran = append(s.ran, c)
	s.mu.Unlock()
	switch c.Args[len(c.Args)-1] {
	case "fail":
		return 3, nil
	case "wait":
		close(s.waits)
		<-ctx.Done()
		return 0, context.Cause(ctx)
	}
	_, err := io.WriteString(c.Output, "printed\nand without an end")
	return 0, errors.Join(err, tar.NewWriter(c.Changes).Close())
}

// commands returns the users and commands that ran since the last call.
func (s *fakeSandboxes) commands() (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.ran {
		list = append(list, c.User+": "+c.Args[len(c.Args)-1])
	}
	s.ran = nil
	return list
}

func (s *fakeSandboxes) Save(context.Context, sandbox.Principal, string, string) (string, string, error) {
	return "", "no memory is saved", nil
}
func (s *fakeSandboxes) Drop(context.Context, string) error { return nil }
func (s *fakeSandboxes) Sweep(context.Context, func(version, memory string) bool) error {
	return nil
}

// hostOnly has only the template base, which has no image.
type hostOnly struct{}

func (hostOnly) Resolve(_ context.Context, ref sandbox.Reference) (sandbox.Template, error) {
	if ref.Name != "base" {
		return sandbox.Template{}, sandbox.TemplateUnknown(ref)
	}
	return sandbox.Template{ID: "tbase", Name: "base"}, nil
}

// testService is a build service with fake sandboxes.
type testService struct {
	*templatebuild.Service
	t         *testing.T
	dir       string
	sandboxes *fakeSandboxes
	library   *library.Library
	catalog   *catalog.Catalog
	entries   *audittest.Log
}

func openService(t *testing.T, dir, host string) *testService {
	t.Helper()
	r := &testService{t: t, dir: dir, sandboxes: &fakeSandboxes{waits: make(chan struct{})}, entries: &audittest.Log{}}
	log := slog.New(slog.DiscardHandler)
	audit := auditlog.New(r.entries, log)
	var err error
	if r.library, err = library.Open(library.Options{Dir: filepath.Join(dir, "oci"), Guest: imagetest.Guest(t), Registry: registry.Options{Rules: registry.Rules{Insecure: []string{host}}}}); err != nil {
		t.Fatal(err)
	}
	if r.catalog, err = catalog.Open(catalog.Options{Dir: filepath.Join(dir, "catalog"), Library: r.library}); err != nil {
		t.Fatal(err)
	}
	builds, err := build.Open(t.Context(), build.Options{Dir: filepath.Join(dir, "builds"), Library: r.library, Sandboxes: r.sandboxes, Audit: audit, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.catalog.Serve(t.Context(), r.sandboxes, audit); err != nil {
		t.Fatal(err)
	}
	r.Service, err = templatebuild.Open(t.Context(), templatebuild.Options{
		Dir: filepath.Join(dir, "builds", "templates"), Library: r.library, Builds: builds, Sandboxes: r.sandboxes, Catalog: r.catalog,
		Templates: r.catalog.FollowedBy(r.library.PrecededBy(hostOnly{})), Audit: audit, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// pull brings a small image to the machine, and returns its name.
func (r *testService) pull(host string) string {
	r.t.Helper()
	ref := host + "/small:1"
	imagetest.Publish(r.t, ref, imagetest.Image(r.t, v1.Config{Env: []string{"A=image"}}, imagetest.Layer(r.t,
		imagetest.File{Name: "etc/passwd", Content: "root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n"})))
	if _, err := r.library.Pull(r.t.Context(), ref, "", func(library.Progress) {}); err != nil {
		r.t.Fatal(err)
	}
	return ref
}

// tarOf returns a tar, compressed as the clients do. Uname of a header is the content of its file.
func tarOf(t *testing.T, list ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, h := range list {
		content := h.Uname
		h.Uname, h.Size, h.Mode = "", int64(len(content)), 0o644
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

// request begins a build.
func (r *testService) request(name string, tags ...string) templatebuild.Record {
	r.t.Helper()
	record, err := r.Request(r.t.Context(), alice, templatebuild.Request{Name: name, Tags: tags})
	if err != nil {
		r.t.Fatal(err)
	}
	return record
}

// upload sends files for a hash.
func (r *testService) upload(record templatebuild.Record, hash string, data []byte) {
	r.t.Helper()
	_, token, err := r.Link(alice, record.Template, hash)
	if err == nil {
		err = r.Receive(token, bytes.NewReader(data))
	}
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.Receive(token, bytes.NewReader(data)); fault.KindOf(err) != fault.NotFound {
		r.t.Errorf("second use of an upload link: got %v, want NotFound", err)
	}
}

// end waits until a build has ended.
func (r *testService) end(record templatebuild.Record) (templatebuild.Record, []string) {
	r.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		status, entries, err := r.Status(alice, record.Template, record.ID, 0, 1000)
		if err != nil {
			r.t.Fatal(err)
		}
		if status.Ended() {
			var log []string
			for _, e := range entries {
				log = append(log, e.Level+" "+e.Message)
			}
			return status, log
		}
		select {
		case <-r.t.Context().Done():
			r.t.Fatal("the build did not end in time")
		case <-tick.C:
		}
	}
}

// build runs a build and waits for its end.
func (r *testService) build(name string, spec templatebuild.Spec) (templatebuild.Record, []string) {
	r.t.Helper()
	record := r.request(name)
	if err := r.Start(r.t.Context(), alice, record.Template, record.ID, spec); err != nil {
		r.t.Fatal(err)
	}
	return r.end(record)
}

// leftovers lists the files in the working directory of builds, and their temporary image names.
func (r *testService) leftovers() (list []string) {
	r.t.Helper()
	entries, err := os.ReadDir(filepath.Join(r.dir, "builds", "templates", "work"))
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	images, err := r.library.List()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, img := range images {
		if strings.HasPrefix(img.Name, "build.invalid/") {
			list = append(list, img.Name)
		}
	}
	return list
}
