package filesystem_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/crannog/crannog/internal/guest/gen/filesystempb"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// watch starts a stream and returns a function that receives until the event want, such as "CREATE
// sub/f", and returns all events up to then.
func (b *testService) watch(t *testing.T, req *pb.WatchDirRequest) func(want string) []*pb.FilesystemEvent {
	t.Helper()
	in, err := b.WatchDir(t.Context(), connect.NewRequest(req))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	if !in.Receive() || in.Msg().GetStart() == nil {
		t.Fatalf("first message of the stream: got %v, %v, want a start", in.Msg(), in.Err())
	}
	return func(want string) []*pb.FilesystemEvent {
		t.Helper()
		var received []*pb.FilesystemEvent
		for in.Receive() {
			e := in.Msg().GetFilesystem()
			received = append(received, e)
			if eventText(e) == want {
				return received
			}
		}
		t.Fatalf("event %s was not received, only %v: %v", want, eventTexts(received), in.Err())
		return nil
	}
}

// eventText returns an event such as "CREATE f".
func eventText(e *pb.FilesystemEvent) string {
	return strings.TrimPrefix(e.GetType().String(), "EVENT_TYPE_") + " " + e.GetName()
}

// eventTexts returns the texts of several events.
func eventTexts(events []*pb.FilesystemEvent) string {
	var all []string
	for _, e := range events {
		all = append(all, eventText(e))
	}
	return strings.Join(all, ", ")
}

func TestWatchStream(t *testing.T) {
	b := newTestService(t)
	until := b.watch(t, &pb.WatchDirRequest{Path: ".", IncludeEntry: true})
	path := b.write(t, "f", "x")
	seen := until("WRITE f")
	if eventTexts(seen) != "CREATE f, WRITE f" {
		t.Errorf("events: got %s, want CREATE f, WRITE f", eventTexts(seen))
	}
	if e := seen[1].GetEntry(); e.GetPath() != path || e.GetType() != pb.FileType_FILE_TYPE_FILE {
		t.Errorf("description of the created file: got %v", e)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	until("CHMOD f")
	if err := os.Rename(path, path+"2"); err != nil {
		t.Fatal(err)
	}
	if got := eventTexts(until("CREATE f2")); got != "RENAME f, CREATE f2" {
		t.Errorf("events: got %s, want RENAME f, CREATE f2", got)
	}
	if err := os.Remove(path + "2"); err != nil {
		t.Fatal(err)
	}
	if seen := until("REMOVE f2"); seen[len(seen)-1].Entry != nil {
		t.Errorf("a removed entry is described: %v", seen)
	}
}

func TestWatchIsNotRecursiveByDefault(t *testing.T) {
	b := newTestService(t)
	b.write(t, "sub/old", "")
	until := b.watch(t, &pb.WatchDirRequest{Path: "."})
	b.write(t, "sub/new", "")
	b.write(t, "last", "")
	for _, e := range until("CREATE last") {
		if strings.Contains(e.GetName(), "/") || e.Entry != nil {
			t.Errorf("event: got %v, want a direct child without a description", e)
		}
	}
}

func TestWatchRecursive(t *testing.T) {
	b := newTestService(t)
	b.write(t, "sub/old", "")
	until := b.watch(t, &pb.WatchDirRequest{Path: ".", Recursive: true})
	b.write(t, "sub/old", "x")
	until("WRITE sub/old")
	// The new entries may exist before the new directories are watched. Each must be reported
	// exactly once.
	b.write(t, "a/b/c/f", "")
	seen := until("CREATE a/b/c/f")
	if got := eventTexts(seen); strings.Count(got, "CREATE a/b/c/f") != 1 || strings.Count(got+",", "CREATE a/b,") != 1 {
		t.Errorf("events: got %s, want one creation of a/b and of a/b/c/f", got)
	}
	b.write(t, "a/b/c/f", "later")
	until("WRITE a/b/c/f")
	// A directory that is moved is reported below its new name.
	if err := os.Rename(filepath.Join(b.home, "a/b"), filepath.Join(b.home, "moved")); err != nil {
		t.Fatal(err)
	}
	until("CREATE moved")
	b.write(t, "moved/c/f", "again")
	until("WRITE moved/c/f")
	if err := os.RemoveAll(filepath.Join(b.home, "moved")); err != nil {
		t.Fatal(err)
	}
	seen = until("REMOVE moved")
	if strings.Count(eventTexts(seen), "REMOVE moved/c/f") != 1 {
		t.Errorf("events: got %s, want one removal of moved/c/f", eventTexts(seen))
	}
}

func TestWatchErrors(t *testing.T) {
	b := newTestService(t)
	b.write(t, "f", "")
	for path, want := range map[string]connect.Code{
		"nope": connect.CodeNotFound, "f": connect.CodeInvalidArgument, "f/x": connect.CodeNotFound, "a\x00": connect.CodeInvalidArgument,
	} {
		in, err := b.WatchDir(t.Context(), connect.NewRequest(&pb.WatchDirRequest{Path: path}))
		if err != nil {
			t.Fatal(err)
		}
		if in.Receive() || connect.CodeOf(in.Err()) != want {
			t.Errorf("WatchDir of %q: got %v, %v, want %v", path, in.Msg(), in.Err(), want)
		}
		if _, err := b.CreateWatcher(t.Context(), connect.NewRequest(&pb.CreateWatcherRequest{Path: path})); connect.CodeOf(err) != want {
			t.Errorf("CreateWatcher of %q: got %v, want %v", path, err, want)
		}
	}
}

func TestStreamEndsWhenDirectoryIsRemoved(t *testing.T) {
	b := newTestService(t)
	b.write(t, "dir/f", "")
	in, err := b.WatchDir(t.Context(), connect.NewRequest(&pb.WatchDirRequest{Path: "dir"}))
	if err != nil {
		t.Fatal(err)
	}
	if !in.Receive() {
		t.Fatal(in.Err())
	}
	if err := os.RemoveAll(filepath.Join(b.home, "dir")); err != nil {
		t.Fatal(err)
	}
	for in.Receive() {
	}
	if connect.CodeOf(in.Err()) != connect.CodeNotFound {
		t.Errorf("end of the stream: got %v, want NotFound", in.Err())
	}
}

func TestPolledWatcher(t *testing.T) {
	b := newTestService(t)
	res, err := b.CreateWatcher(t.Context(), connect.NewRequest(&pb.CreateWatcherRequest{Path: ".", Recursive: true}))
	if err != nil {
		t.Fatal(err)
	}
	id := res.Msg.GetWatcherId()
	if !strings.HasPrefix(id, "w") {
		t.Errorf("ID of the watcher: got %q, want the prefix w", id)
	}
	b.write(t, "sub/f", "x")
	var got string
	deadline := hosttest.Deadline()
	for !strings.Contains(got, "CREATE sub/f") {
		if time.Now().After(deadline) {
			t.Fatalf("polled events: got only %q", got)
		}
		res, err := b.GetWatcherEvents(t.Context(), connect.NewRequest(&pb.GetWatcherEventsRequest{WatcherId: id}))
		if err != nil {
			t.Fatal(err)
		}
		got += eventTexts(res.Msg.GetEvents()) + ", "
	}
	if strings.Count(got, "CREATE sub,") != 1 {
		t.Errorf("an event was returned twice: %s", got)
	}
	for range 2 {
		_, err = b.RemoveWatcher(t.Context(), connect.NewRequest(&pb.RemoveWatcherRequest{WatcherId: id}))
	}
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("second removal: got %v, want NotFound", err)
	}
	if _, err := b.GetWatcherEvents(t.Context(), connect.NewRequest(&pb.GetWatcherEventsRequest{WatcherId: id})); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("events of a removed watcher: %v", err)
	}
}

func TestWatchersAreLimited(t *testing.T) {
	b := newTestService(t)
	var last error
	for range 300 {
		if _, last = b.CreateWatcher(t.Context(), connect.NewRequest(&pb.CreateWatcherRequest{Path: "."})); last != nil {
			break
		}
	}
	if connect.CodeOf(last) != connect.CodeResourceExhausted {
		t.Errorf("last watcher: got %v, want ResourceExhausted", last)
	}
}
