package main

import (
	"compress/gzip"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// packed writes a compressed file and returns its path.
func packed(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "programs.gz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestProgramsAreRead(t *testing.T) {
	all, err := readPrograms(packed(t, `{"task_id":"a/0","prompt":"def f():\n","canonical_solution":"  return 1\n","test":"def check(f): assert f() == 1","entry_point":"f"}`+"\n"+`{"task_id":"a/1"}`+"\n"))
	if err != nil || len(all) != 2 || all[1].TaskID != "a/1" {
		t.Fatalf("readPrograms: got %+v, %v, want two programs", all, err)
	}
	if want := "def f():\n  return 1\n\ndef check(f): assert f() == 1\ncheck(f)\nprint('passed')\n"; all[0].text() != want {
		t.Errorf("the first program: got %q, want %q", all[0].text(), want)
	}
	for name, path := range map[string]string{"no program": packed(t, ""), "no JSON": packed(t, "{}\nx\n"), "no archive": os.Args[0]} {
		if all, err := readPrograms(path); err == nil {
			t.Errorf("readPrograms of a file with %s: got %+v, want an error", name, all)
		}
	}
	if _, err := readPrograms(filepath.Join(t.TempDir(), "gone")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("readPrograms of a missing file: got %v, want an error", err)
	}
}

// TestHumanevalWithoutPrograms checks that the group is left out if the programs are missing,
// because they are not part of the repository.
func TestHumanevalWithoutPrograms(t *testing.T) {
	t.Setenv("CRANNOG_HUMANEVAL", filepath.Join(t.TempDir(), "gone"))
	b := &bench{report: &report{}}
	if err := humanevalFigures(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if s := b.report.Sections; len(s) != 1 || len(s[0].Notes) != 1 || !strings.Contains(s[0].Notes[0], humanevalFile()) {
		t.Errorf("without programs: got the sections %+v, want one note that names the missing file", s)
	}
}

// TestSolveAll checks that a program that fails its tests is an error, not a score.
func TestSolveAll(t *testing.T) {
	s := newScores()
	all := []program{{TaskID: "a/0", EntryPoint: "f"}, {TaskID: "a/1", EntryPoint: "g"}}
	run := func(_ context.Context, text string) (string, error) {
		if strings.Contains(text, "check(g)") {
			return "passed\n", nil
		}
		return "AssertionError", nil
	}
	if err := solveAll(t.Context(), s, "way", all[1:], run); err != nil || len(s.by["way"]) != 1 {
		t.Errorf("solve a correct program: got the scores %v, %v, want one score", s.by, err)
	}
	if err := solveAll(t.Context(), s, "way", all, run); err == nil || !strings.Contains(err.Error(), "a/0") {
		t.Errorf("solve a wrong program: got %v, want an error that names it", err)
	}
}
