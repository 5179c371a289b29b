package lifecycle_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/sandbox"
)

// Changes since a snapshot are those between its files, which another instance of the sandbox shows,
// and the current ones. That instance is removed afterwards.
func TestChangesSinceSnapshot(t *testing.T) {
	y := newWorkspaceRig(t, level("light"))
	ctx := t.Context()
	n, err := y.Snapshot(ctx, local, y.sb.ID, sandbox.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	saved := filepath.Join(t.TempDir(), "saved")
	if err := os.CopyFS(saved, os.DirFS(y.inside)); err != nil {
		t.Fatal(err)
	}
	current, earlier := guestFiles(y.inside), guestFiles(saved)
	var asked []string
	y.files = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from := earlier
		if id := r.Header.Get(instanceHeader); id == y.sb.ID {
			from = current
		} else if !slices.Contains(asked, id) {
			asked = append(asked, id)
		}
		from.ServeHTTP(w, r)
	})
	write(t, y.inside, "a.txt", "one\nthree\n")
	write(t, y.inside, "new/c.txt", "newer\n")
	y.remove("same.txt")
	set, err := y.Changes().Changes(ctx, local, y.sb.ID, sandbox.ChangesRequest{Since: n.ID, Text: true})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := paths(set.Changes), []string{"changed a.txt", "created new/c.txt", "removed same.txt"}; !slices.Equal(got, want) {
		t.Errorf("changes since the snapshot: got %q, want %q", got, want)
	}
	if text := set.Changes[0].Text; !strings.Contains(text, "-two\n+three\n") {
		t.Errorf("the text of a.txt is %q, want the change of its second line", text)
	}
	if len(asked) != 1 {
		t.Errorf("the files of the snapshot were read from %q, want one instance", asked)
	}
	held, err := y.engine.List(ctx)
	if err != nil || len(held) != 1 || held[0].ID != y.sb.ID {
		t.Errorf("instances: got %v, %v, want only the sandbox", held, err)
	}
	if _, err := y.Changes().Changes(ctx, local, y.sb.ID, sandbox.ChangesRequest{Since: "unknown"}); err == nil {
		t.Error("changes since an unknown snapshot: no error")
	}
}
