package build_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/audit/audittest"
	"github.com/crannog/crannog/internal/audit/provenance"
	"github.com/crannog/crannog/internal/build"
	"github.com/crannog/crannog/internal/build/buildcontext"
	"github.com/crannog/crannog/internal/build/solve"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/fileowners"
	"github.com/crannog/crannog/internal/image/library"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/auditlog"
)

var local = sandbox.Principal{Local: true}

// fakeSandboxes is a sandbox service without sandboxes: a command "write NAME TEXT" changes a file,
// "fail" exits with 3, and "wait" runs until it is canceled.
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
	switch c.Args[0] {
	case "fail":
		return 3, nil
	case "wait":
		close(s.waits)
		<-ctx.Done()
		return 0, context.Cause(ctx)
	case "write":
		w := tar.NewWriter(c.Changes)
		if err := w.WriteHeader(&tar.Header{Name: "./" + c.Args[1], Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(c.Args[2])), ModTime: time.Now()}); err != nil {
			return 0, err
		}
		if _, err := io.WriteString(w, c.Args[2]); err != nil {
			return 0, err
		}
		return 0, w.Close()
	}
	return 0, errors.New("an unknown command")
}

// testService is a build service with fake sandboxes.
type testService struct {
	*build.Service
	dir       string
	sandboxes *fakeSandboxes
	library   *library.Library
	audit     *audittest.Log
}

func openService(t *testing.T, dir string) *testService {
	t.Helper()
	l, err := library.Open(library.Options{Dir: filepath.Join(dir, "oci"), Guest: "/bin/true"})
	if err != nil {
		t.Fatal(err)
	}
	r := &testService{dir: filepath.Join(dir, "builds"), sandboxes: &fakeSandboxes{waits: make(chan struct{})}, library: l, audit: &audittest.Log{}}
	r.Service, err = build.Open(t.Context(), build.Options{
		Dir: r.dir, Library: l, Sandboxes: r.sandboxes, Audit: auditlog.New(r.audit, slog.New(slog.DiscardHandler)), Log: slog.New(slog.DiscardHandler),
		Signing: build.Signing{
			Keys: provenance.NewKeys(filepath.Join(dir, "keys")), Version: "v9",
			Policy: func(sandbox.Access) (digest, level string, err error) { return "sha256:61cc", "standard", nil },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// leftovers returns the number of files in the working directory of builds.
func (r *testService) leftovers(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(r.dir, "work"))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// build creates a build, uploads its files as the context, and runs it.
func (r *testService) build(t *testing.T, req build.Request, files map[string]string) (library.Image, error) {
	t.Helper()
	record, _, err := r.Create(t.Context(), local, req)
	if err != nil {
		return library.Image{}, err
	}
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	ignore, err := buildcontext.ParseIgnore(nil)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := buildcontext.Pack(t.Context(), root, ignore, &b); err != nil {
		t.Fatal(err)
	}
	// A piece that is sent again is stored once.
	data := b.Bytes()
	half := len(data) / 2
	for _, piece := range [][2]int{{0, half}, {0, half}, {half, len(data)}} {
		if err := r.Upload(t.Context(), local, record.ID, int64(piece[0]), data[piece[0]:piece[1]]); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Upload(t.Context(), local, record.ID, int64(len(data)+1), []byte("x")); fault.CodeOf(err) != "build_offset" {
		t.Errorf("Upload with a gap: got %v, want build_offset", err)
	}
	return r.Run(t.Context(), local, record.ID, func(solve.Event) {})
}

// simple is a Dockerfile that copies a file and runs one command.
const simple = "FROM scratch\nCOPY f /f\nENV A=b\nWORKDIR /w\nRUN [\"write\", \"made\", \"text\"]\nCMD [\"/f\"]\n"

func TestBuildCachesStepsByInputs(t *testing.T) {
	r := openService(t, t.TempDir())
	files := map[string]string{"f": "content"}
	first, err := r.build(t, build.Request{Tag: "app:1", Dockerfile: []byte(simple)}, files)
	if err != nil {
		t.Fatal(err)
	}
	if c := first.Config; len(first.Layers) != 3 || c.WorkingDir != "/w" || c.Cmd[0] != "/f" || first.Root == nil {
		t.Errorf("first build: got image %+v, want three layers, the directory /w and the command /f", first)
	}
	for name, want := range map[string]string{"f": "content", "made": "text"} {
		if got, err := os.ReadFile(filepath.Join(first.Root.Tree(), name)); err != nil || string(got) != want {
			t.Errorf("%s: ReadFile: got %q, error %v", name, got, err)
		}
	}
	again, err := r.build(t, build.Request{Tag: "app:2", Dockerfile: []byte(simple)}, files)
	if err != nil || again.Digest != first.Digest || len(r.sandboxes.ran) != 1 {
		t.Errorf("second build: got digest %v, %d commands, error %v, want the first digest and one command in all", again.Digest, len(r.sandboxes.ran), err)
	}
	// A changed label causes no command to run again, but a changed variable may.
	for change, ran := range map[string]int{"ENV A=b\nLABEL x=y": 0, "ENV A=c": 1} {
		before := len(r.sandboxes.ran)
		if _, err := r.build(t, build.Request{Tag: "app:3", Dockerfile: []byte(strings.Replace(simple, "ENV A=b", change, 1))}, files); err != nil || len(r.sandboxes.ran)-before != ran {
			t.Errorf("build with %q: got %d commands, error %v, want %d commands", change, len(r.sandboxes.ran)-before, err, ran)
		}
	}
	before := len(r.sandboxes.ran)
	if _, err := r.build(t, build.Request{Tag: "app:4", Dockerfile: []byte(simple)}, map[string]string{"f": "other"}); err != nil || len(r.sandboxes.ran) != before+1 {
		t.Errorf("build with another file: got %d commands, error %v, want 1", len(r.sandboxes.ran)-before, err)
	}
	if _, err := r.build(t, build.Request{Tag: "app:5", Dockerfile: []byte(simple), NoCache: true}, files); err != nil || len(r.sandboxes.ran) != before+2 {
		t.Errorf("build without the cache: got %d commands in two builds, error %v, want 2", len(r.sandboxes.ran)-before, err)
	}
	// Pruning keeps images that the cache refers to.
	if _, err := r.library.Prune(t.Context()); err != nil {
		t.Fatal(err)
	}
	before = len(r.sandboxes.ran)
	if _, err := r.build(t, build.Request{Tag: "app:6", Dockerfile: []byte(simple)}, map[string]string{"f": "other"}); err != nil || len(r.sandboxes.ran) != before {
		t.Errorf("build after pruning: got %d commands, error %v, want none", len(r.sandboxes.ran)-before, err)
	}
	if n := r.leftovers(t); n != 0 {
		t.Errorf("got %d files in the working directory, want 0", n)
	}
}

func TestBuildIsReproducible(t *testing.T) {
	var digests []string
	for range 2 {
		r := openService(t, t.TempDir())
		img, err := r.build(t, build.Request{Tag: "app:1", Dockerfile: []byte(simple), Epoch: time.Unix(1_000_000_000, 0)}, map[string]string{"f": "content"})
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, img.Digest.String())
	}
	if digests[0] != digests[1] {
		t.Errorf("two equal builds: got digests %q, want equal ones", digests)
	}
}

func TestSecretsAreNotStored(t *testing.T) {
	const secret = "a-secret-of-the-test"
	r := openService(t, t.TempDir())
	text := "FROM scratch\nRUN --mount=type=secret,id=one,required=true --mount=type=secret,id=two,env=TWO [\"write\", \"run/secrets/one\", \"" + secret + "\"]\n"
	if _, err := r.build(t, build.Request{Tag: "app:1", Dockerfile: []byte(text)}, nil); fault.CodeOf(err) != "build_secret_missing" {
		t.Errorf("build without the secret: got %v, want build_secret_missing", err)
	}
	img, err := r.build(t, build.Request{Tag: "app:1", Dockerfile: []byte(text), Secrets: map[string][]byte{"one": []byte(secret), "two": []byte("x")}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(img.Layers) != 0 {
		t.Errorf("the image has %d layers, want none", len(img.Layers))
	}
	c := r.sandboxes.ran[len(r.sandboxes.ran)-1]
	if len(c.Binds) != 1 || c.Binds[0].Target != "/run/secrets/one" || c.Env["TWO"] != "x" {
		t.Errorf("the command had the mounts %+v and the variables %v, want the secrets one and two", c.Binds, c.Env)
	}
	entries, err := json.Marshal(r.audit.Entries())
	if err != nil || bytes.Contains(entries, []byte(secret)) || !bytes.Contains(entries, []byte("image.build")) {
		t.Errorf("the audit log has %s, error %v, want image.build and no secret", entries, err)
	}
	err = filepath.WalkDir(r.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(secret)) {
			t.Errorf("%s has the secret", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestCanceledBuildLeavesNoFiles(t *testing.T) {
	r := openService(t, t.TempDir())
	record, _, err := r.Create(t.Context(), local, build.Request{Tag: "app:1", Dockerfile: []byte("FROM scratch\nRUN [\"wait\"]\n")})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-r.sandboxes.waits
		if err := r.Cancel(context.WithoutCancel(t.Context()), local, record.ID); err != nil {
			t.Error(err)
		}
	}()
	if _, err := r.Run(t.Context(), local, record.ID, func(solve.Event) {}); fault.KindOf(err) != fault.Canceled {
		t.Errorf("Run: got %v", err)
	}
	if got, err := r.Get(local, record.ID); err != nil || got.State != build.Canceled || r.leftovers(t) != 0 {
		t.Errorf("Get: got state %s, error %v, and %d files are left", got.State, err, r.leftovers(t))
	}
	if _, err := r.Run(t.Context(), local, record.ID, func(solve.Event) {}); fault.KindOf(err) != fault.NotFound {
		t.Errorf("second Run: got %v, want NotFound", err)
	}
}

func TestFailedStepErrorNamesLine(t *testing.T) {
	r := openService(t, t.TempDir())
	_, err := r.build(t, build.Request{Tag: "app:1", Dockerfile: []byte("FROM scratch\n\nRUN [\"fail\"]\n")}, nil)
	if fault.CodeOf(err) != "build_step_failed" || !strings.Contains(err.Error(), "line 3") || !strings.Contains(err.Error(), "exit code 3") {
		t.Errorf("Run: got %v", err)
	}
	if list, err := r.List(local); err != nil || len(list) != 1 || list[0].State != build.Failed || r.leftovers(t) != 0 {
		t.Errorf("List: got builds %+v, error %v, and %d files are left, want one failed build without files", list, err, r.leftovers(t))
	}
	if _, err := r.library.Inspect("app:1"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("Inspect of the image: got %v, want NotFound", err)
	}
}

// A process that dies leaves its files, and the record of a running build.
func TestOpenRemovesFilesOfDeadProcess(t *testing.T) {
	dir := t.TempDir()
	r := openService(t, dir)
	record, _, err := r.Create(t.Context(), local, build.Request{Tag: "app:1", Dockerfile: []byte(simple)})
	if err != nil {
		t.Fatal(err)
	}
	if again := openService(t, dir); again.leftovers(t) != 1 || len(again.sandboxes.cleaned) != 0 {
		t.Error("Open removed a build of a living process")
	}
	path := filepath.Join(r.dir, "records", record.ID+".json")
	record.State, record.Process.Start = build.Running, "another boot/1"
	data, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	again := openService(t, dir)
	got, err := again.Get(local, record.ID)
	if err != nil || got.State != build.Failed || got.Code != "build_interrupted" || again.leftovers(t) != 0 || len(again.sandboxes.cleaned) != 1 {
		t.Errorf("Get: got %+v, error %v; %d files are left, cleaned %q", got, err, again.leftovers(t), again.sandboxes.cleaned)
	}
}

func TestBuildsOfOtherKeyAreNotFound(t *testing.T) {
	r := openService(t, t.TempDir())
	one, other := sandbox.Principal{KeyID: "one"}, sandbox.Principal{KeyID: "other"}
	record, _, err := r.Create(t.Context(), one, build.Request{Tag: "localhost/one/app:1", Dockerfile: []byte(simple)})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Create(t.Context(), other, build.Request{Tag: "localhost/one/app:1", Dockerfile: []byte(simple)}); fault.CodeOf(err) != "image_name_not_allowed" {
		t.Errorf("Create with the image name of another key: got %v, want image_name_not_allowed", err)
	}
	for what, err := range map[string]error{
		"upload": r.Upload(t.Context(), other, record.ID, 0, nil), "cancel": r.Cancel(t.Context(), other, record.ID),
	} {
		if fault.KindOf(err) != fault.NotFound {
			t.Errorf("%s with another key: got %v, want NotFound", what, err)
		}
	}
	if _, err := r.Get(other, record.ID); fault.KindOf(err) != fault.NotFound {
		t.Errorf("Get with another key: got %v, want NotFound", err)
	}
	if list, err := r.List(other); err != nil || len(list) != 0 {
		t.Errorf("List with another key: got %v, error %v, want no build", list, err)
	}
	if _, _, err := r.Create(t.Context(), one, build.Request{Tag: "localhost/one/app:1", Dockerfile: []byte(simple), Push: true}); fault.KindOf(err) != fault.Denied {
		t.Errorf("Create with a push by a key: got %v, want Denied", err)
	}
	if _, _, err := r.Create(t.Context(), sandbox.Principal{}, build.Request{Tag: "localhost/one/app:1", Dockerfile: []byte(simple)}); fault.KindOf(err) != fault.Unauthenticated {
		t.Errorf("Create without a caller: got %v, want Unauthenticated", err)
	}
}

// Files of another stage keep their owners and set-id bits, although the tree on the host has none.
func TestCopyFromStageKeepsOwners(t *testing.T) {
	r := openService(t, t.TempDir())
	text := "FROM scratch AS a\nCOPY --chmod=4755 f /bin/su\nCOPY --chown=33:34 --chmod=2750 f /srv/f\nCOPY f /plain\n" +
		"FROM scratch\nCOPY --from=a / /\nCOPY --from=a --chown=7 /srv/f /other\n"
	img, err := r.build(t, build.Request{Tag: "app:1", Dockerfile: []byte(text)}, map[string]string{"f": "content"})
	if err != nil {
		t.Fatal(err)
	}
	table, err := fileowners.Read(img.Root.Owners())
	if err != nil {
		t.Fatal(err)
	}
	want := fileowners.Table{
		"/home/user": {UID: 1000, GID: 1000}, "/bin/su": {SetID: 0o4000}, "/srv": {UID: 33, GID: 34}, "/srv/f": {UID: 33, GID: 34, SetID: 0o2000}, "/other": {UID: 7, GID: 7, SetID: 0o2000},
	}
	if !maps.Equal(table, want) {
		t.Errorf("the owners are %v, want %v", table, want)
	}
}
