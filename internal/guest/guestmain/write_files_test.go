package guestmain

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/guest"
)

func TestWriteFilesPreservesRange(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "store")
	set := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := guest.File{Path: path, Mode: 0o644, Data: []byte("new-end"), Around: &guest.Around{Head: []byte("HE"), From: 2, To: 8, Length: 11}}
	set("hemiddleend")
	if err := writeFiles("/", []guest.File{file}, true); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "HEmiddlenew-end" {
		t.Errorf("content with a preserved range: got %q, %v, want HEmiddlenew-end", got, err)
	}
	// Data is not added to a file with another length.
	set("another")
	if err := writeFiles("/", []guest.File{file}, true); err == nil {
		t.Error("data was added to an unexpected file without an error")
	}
	for _, bad := range []guest.Around{{Head: []byte("HE"), From: 1, To: 8, Length: 7}, {From: 5, To: 4, Length: 7}, {From: 0, To: 8, Length: 7}, {From: -1, To: 3, Length: 7}} {
		if err := writeFiles("/", []guest.File{{Path: path, Mode: 0o644, Around: &bad}}, true); err == nil {
			t.Errorf("the invalid range %+v was accepted", bad)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "another" {
		t.Errorf("file of another length: got %q, %v, want it unchanged", got, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := writeFiles("/", []guest.File{file}, true); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("writeFiles created a missing file with Around")
	}
}

func TestWriteFilesRejectsUncleanPaths(t *testing.T) {
	root := t.TempDir()
	for _, path := range []string{"", "a", "/a/../b", "/a/", "//a"} {
		if err := writeFiles(root, []guest.File{{Path: path, Mode: 0o644, Data: []byte("x")}}, true); err == nil {
			t.Errorf("the path %q was accepted", path)
		}
	}
	if left, err := os.ReadDir(root); err != nil || len(left) != 0 {
		t.Errorf("files were written: %v %v", left, err)
	}
}
