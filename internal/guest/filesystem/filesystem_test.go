package filesystem_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest/filesystem"
	pb "github.com/crannog/crannog/internal/guest/gen/filesystempb"
	"github.com/crannog/crannog/internal/guest/gen/filesystempb/filesystempbconnect"
	"github.com/crannog/crannog/internal/guest/identity"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// testService is a service behind a Unix socket and a JSON client of it.
type testService struct {
	filesystempbconnect.FilesystemClient
	home string
}

func newTestService(t testing.TB) *testService {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	me := identity.User{Name: "user", UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Home: home}
	service := filesystem.New(filesystem.Config{
		Accounts: identity.Accounts{Users: identity.Fixed{me}, Default: "user"},
	})
	mux := http.NewServeMux()
	mux.Handle(filesystempbconnect.NewFilesystemHandler(service))
	client := hosttest.ServeUnix(t, mux)
	t.Cleanup(func() {
		if err := service.Close(); err != nil {
			t.Error(err)
		}
	})
	return &testService{filesystempbconnect.NewFilesystemClient(client, "http://guest", connect.WithProtoJSON()), home}
}

// write creates a file below the home, and its directories.
func (b *testService) write(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(b.home, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
	return path
}

func (b *testService) stat(t testing.TB, path string) *pb.EntryInfo {
	t.Helper()
	res, err := b.Stat(t.Context(), connect.NewRequest(&pb.StatRequest{Path: path}))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.GetEntry()
}

func TestStatFile(t *testing.T) {
	b := newTestService(t)
	path := b.write(t, "f", "12345")
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(path, "user.e2b.author", []byte("me"), 0); err != nil {
		t.Fatal(err)
	}
	e := b.stat(t, "f")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if e.GetName() != "f" || e.GetPath() != path || e.GetType() != pb.FileType_FILE_TYPE_FILE || e.GetSize() != 5 ||
		e.GetMode() != 0o640 || e.GetPermissions() != "-rw-r-----" || !e.GetModifiedTime().AsTime().Equal(info.ModTime()) ||
		e.SymlinkTarget != nil || e.GetMetadata()["author"] != "me" || len(e.GetMetadata()) != 1 {
		t.Errorf("Stat of the file: got %v, want its mode, time and metadata", e)
	}
	if e.GetOwner() != "user" || e.GetGroup() != "user" {
		t.Errorf("Stat: got owner %q and group %q, want user", e.GetOwner(), e.GetGroup())
	}
}

func TestStatLinks(t *testing.T) {
	b := newTestService(t)
	target := b.write(t, "dir/f", "12345")
	links := map[string]string{"one": "dir/f", "two": "one", "todir": "dir", "broken": "missing", "loop": "loop"}
	for name, to := range links {
		if err := os.Symlink(to, filepath.Join(b.home, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]struct {
		kind   pb.FileType
		target string
	}{
		"one":    {pb.FileType_FILE_TYPE_FILE, target},
		"two":    {pb.FileType_FILE_TYPE_FILE, target},
		"todir":  {pb.FileType_FILE_TYPE_DIRECTORY, filepath.Dir(target)},
		"broken": {pb.FileType_FILE_TYPE_SYMLINK, "missing"},
		"loop":   {pb.FileType_FILE_TYPE_SYMLINK, "loop"},
	} {
		e := b.stat(t, name)
		if e.GetType() != want.kind || e.GetSymlinkTarget() != want.target || e.GetPath() != filepath.Join(b.home, name) {
			t.Errorf("Stat of %s: got %v, want type %v and target %s", name, e, want.kind, want.target)
		}
	}
}

func TestStatErrors(t *testing.T) {
	b := newTestService(t)
	file := b.write(t, "f", "")
	for path, want := range map[string]connect.Code{
		"/nope": connect.CodeNotFound, file + "/below": connect.CodeNotFound,
		"a\x00b": connect.CodeInvalidArgument, strings.Repeat("x", 300): connect.CodeInvalidArgument,
		strings.Repeat("x/", 4000): connect.CodeInvalidArgument,
	} {
		_, err := b.Stat(t.Context(), connect.NewRequest(&pb.StatRequest{Path: path}))
		if connect.CodeOf(err) != want {
			t.Errorf("Stat of %.20s: got %v, want %v", path, err, want)
		}
	}
	_, err := b.Stat(t.Context(), connect.NewRequest(&pb.StatRequest{Path: "/nope"}))
	if err == nil || err.Error() != "not_found: file not found: lstat /nope: no such file or directory" {
		t.Errorf("text of the error for a missing file: got %v", err)
	}
	req := connect.NewRequest(&pb.StatRequest{Path: "/"})
	req.Header().Set("Authorization", "Basic bWFsbG9yeTo=")
	if _, err := b.Stat(t.Context(), req); err == nil || err.Error() != "unauthenticated: invalid username: 'mallory'" {
		t.Errorf("Stat as an unknown user: got %v, want unauthenticated", err)
	}
}

func TestMakeDir(t *testing.T) {
	b := newTestService(t)
	b.write(t, "f", "")
	makeDir := func(path string) (*pb.EntryInfo, error) {
		res, err := b.MakeDir(t.Context(), connect.NewRequest(&pb.MakeDirRequest{Path: path}))
		if err != nil {
			return nil, err
		}
		return res.Msg.GetEntry(), nil
	}
	e, err := makeDir("a/b/c")
	if err != nil || e.GetType() != pb.FileType_FILE_TYPE_DIRECTORY || e.GetMode() != 0o755 {
		t.Fatalf("MakeDir: got %v, %v, want a directory with mode 0755", e, err)
	}
	for path, want := range map[string]connect.Code{
		"a/b/c": connect.CodeAlreadyExists, "f": connect.CodeInvalidArgument, "f/x": connect.CodeInvalidArgument,
	} {
		if _, err := makeDir(path); connect.CodeOf(err) != want {
			t.Errorf("MakeDir of %s: got %v, want %v", path, err, want)
		}
	}
}

func TestMove(t *testing.T) {
	b := newTestService(t)
	b.write(t, "from/f", "content")
	move := func(from, to string) (*pb.EntryInfo, error) {
		res, err := b.Move(t.Context(), connect.NewRequest(&pb.MoveRequest{Source: from, Destination: to}))
		if err != nil {
			return nil, err
		}
		return res.Msg.GetEntry(), nil
	}
	e, err := move("from/f", "to/deep/g")
	if err != nil || e.GetPath() != filepath.Join(b.home, "to/deep/g") || e.GetName() != "g" {
		t.Fatalf("Move: got %v, %v, want to/deep/g", e, err)
	}
	if _, err := os.Stat(filepath.Join(b.home, "from/f")); err == nil {
		t.Error("the source is still there")
	}
	for _, from := range []string{"nope", "to/deep/g/x"} {
		if _, err := move(from, "x"); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("Move of %s: got %v, want NotFound", from, err)
		}
	}
}

// The tree is moved to a file system in memory, to which it cannot be renamed.
func TestMoveAcrossFileSystems(t *testing.T) {
	b := newTestService(t)
	b.write(t, "tree/sub/f", "content")
	if err := os.Chmod(filepath.Join(b.home, "tree/sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("sub/f", filepath.Join(b.home, "tree/link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(filepath.Join(b.home, "tree/sub/f"), "user.e2b.k", []byte("v"), 0); err != nil {
		t.Fatal(err)
	}
	shm, err := os.MkdirTemp("/dev/shm", "move-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(shm)
	to := filepath.Join(shm, "tree")
	if _, err := b.Move(t.Context(), connect.NewRequest(&pb.MoveRequest{Source: "tree", Destination: to})); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(to, "link"))
	if err != nil || string(data) != "content" {
		t.Errorf("moved file: got content %q, %v, want content", data, err)
	}
	if e := b.stat(t, to+"/sub"); e.GetMode() != 0o700 {
		t.Errorf("mode of the moved directory: got %o, want 700", e.GetMode())
	}
	if _, err := os.Lstat(filepath.Join(b.home, "tree")); err == nil {
		t.Error("the source is still there")
	}
	left, err := os.ReadDir(shm)
	if err != nil || len(left) != 1 {
		t.Errorf("temporary files remain beside the destination: %v %v", left, err)
	}
}

func TestRemove(t *testing.T) {
	b := newTestService(t)
	b.write(t, "dir/sub/f", "")
	file := b.write(t, "f", "")
	if err := os.Symlink(file, filepath.Join(b.home, "dir/link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"dir", "dir", "/nope/deep", "f/below"} {
		if _, err := b.Remove(t.Context(), connect.NewRequest(&pb.RemoveRequest{Path: path})); err != nil {
			t.Errorf("Remove of %s: %v", path, err)
		}
	}
	if _, err := os.Stat(filepath.Join(b.home, "dir")); err == nil {
		t.Error("the removed directory is still there")
	}
	if _, err := os.Stat(file); err != nil {
		t.Error("the target of a removed link is gone")
	}
	if _, err := b.Remove(t.Context(), connect.NewRequest(&pb.RemoveRequest{Path: "/../"})); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("Remove of the root: got %v, want InvalidArgument", err)
	}
}

func TestListDir(t *testing.T) {
	b := newTestService(t)
	b.write(t, "tree/b/c/d", "")
	b.write(t, "tree/a", "")
	if err := os.Symlink("tree", filepath.Join(b.home, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..", filepath.Join(b.home, "tree/b/up")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("loop", filepath.Join(b.home, "loop")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path  string
		depth uint32
		want  string
	}{
		{"tree", 0, "a b"}, {"tree", 1, "a b"}, {"tree", 2, "a b b/c b/up"}, {"tree", 99, "a b b/c b/c/d b/up"}, {"link", 2, "a b b/c b/up"},
	} {
		res, err := b.ListDir(t.Context(), connect.NewRequest(&pb.ListDirRequest{Path: c.path, Depth: c.depth}))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range res.Msg.GetEntries() {
			name, ok := strings.CutPrefix(e.GetPath(), filepath.Join(b.home, c.path)+"/")
			if !ok {
				t.Errorf("ListDir of %s: got the path %s, want one below it", c.path, e.GetPath())
			}
			names = append(names, name)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("ListDir of %s to depth %d: got %s, want %s", c.path, c.depth, got, c.want)
		}
	}
	for path, want := range map[string]connect.Code{
		"nope": connect.CodeNotFound, "tree/a": connect.CodeInvalidArgument, "loop": connect.CodeFailedPrecondition,
	} {
		if _, err := b.ListDir(t.Context(), connect.NewRequest(&pb.ListDirRequest{Path: path})); connect.CodeOf(err) != want {
			t.Errorf("ListDir of %s: got %v, want %v", path, err, want)
		}
	}
}

// A list is limited in bytes too, because a long path can be as large as forty short entries.
func TestListIsLimitedInBytes(t *testing.T) {
	b := newTestService(t)
	dir := b.home
	for len(dir) < 3500 {
		dir = filepath.Join(dir, strings.Repeat("d", 250))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	list := func() (int, error) {
		res, err := b.ListDir(t.Context(), connect.NewRequest(&pb.ListDirRequest{Path: dir}))
		if err != nil {
			return 0, err
		}
		return len(res.Msg.GetEntries()), nil
	}
	created := 0
	for _, c := range []struct {
		files int
		want  connect.Code
	}{{3000, 0}, {4500, connect.CodeResourceExhausted}} {
		for ; created < c.files; created++ {
			if err := root.WriteFile(fmt.Sprintf("%0200d", created), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		n, err := list()
		if c.want == 0 && (err != nil || n != created) || c.want != 0 && connect.CodeOf(err) != c.want {
			t.Errorf("list of %d files: got %d, %v", created, n, err)
		}
	}
}

func TestHostileNames(t *testing.T) {
	b := newTestService(t)
	for i, name := range []string{"new\nline", "\x1b[31mred", "-rf", "*", "ü\u202e", " ", "...", `q"uote`} {
		dir := fmt.Sprintf("d%d/", i)
		b.write(t, dir+name, "x")
		res, err := b.ListDir(t.Context(), connect.NewRequest(&pb.ListDirRequest{Path: dir}))
		if err != nil || len(res.Msg.GetEntries()) != 1 || res.Msg.GetEntries()[0].GetName() != name {
			t.Errorf("list of the directory with %q: got %v, %v, want this entry", name, res, err)
		}
	}
	// Names need not be valid UTF-8, but the protocol carries only UTF-8.
	b.write(t, "bytes/\xff\xfe", "x")
	res, err := b.ListDir(t.Context(), connect.NewRequest(&pb.ListDirRequest{Path: "bytes"}))
	if err != nil || len(res.Msg.GetEntries()) != 1 {
		t.Errorf("list with a name that is not UTF-8: got %v, %v, want one entry", res, err)
	}
}
