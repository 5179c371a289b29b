package cli

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestTheLastAssignmentWins(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	for name, text := range map[string]string{one: "A=1\nB=1\nC=1\nD=1\n", two: "A=2\nB=2\nE\nUNSET\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := &app{Env: Env{Vars: []string{"E=ours", "EMPTY="}}}
	got, err := a.assignments([]string{"B=flag", "D", "EMPTY", "NOWHERE"}, []string{one, two})
	want := []string{"C=1", "A=2", "E=ours", "B=flag", "EMPTY="}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
