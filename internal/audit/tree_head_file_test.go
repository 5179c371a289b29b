package audit

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// When the file is rewritten with fewer tree heads, an incomplete line that a crash left is
// removed. Joined with the next line it would be a tree head without a valid signature, and the log
// would accept no more entries.
func TestRewriteDropsIncompleteTreeHead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "record")
	l := openLog(t, Options{Dir: dir})
	fill(t, l, 0, 3)
	c, err := l.Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	line, err := json.Marshal(storedTreeHead{c.Note})
	if err != nil {
		t.Fatal(err)
	}
	line = append(line, '\n')
	full := bytes.Repeat(line, maxCheckpoints/len(line)+1)
	if err := os.WriteFile(l.path(checkpointsName), append(full, line[:len(line)/2]...), 0o600); err != nil {
		t.Fatal(err)
	}
	fill(t, l, 3, 4)
	newer, err := l.Checkpoint(t.Context())
	if err != nil || newer.Size != 4 {
		t.Fatalf("Checkpoint: got %+v, %v, want size 4", newer, err)
	}
	info, err := os.Stat(l.path(checkpointsName))
	if err != nil || info.Size() > maxCheckpoints {
		t.Fatalf("the file was not made smaller: %v, %v", info, err)
	}
	if got, err := l.lastCheckpoint(); err != nil || got != newer {
		t.Errorf("the last tree head is %+v, %v", got, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, Options{Dir: dir})
	fill(t, l, 4, 5)
	if v, err := l.Verify(t.Context()); err != nil || !v.OK {
		t.Errorf("Verify: got %+v, %v, want OK", v, err)
	}
}
