package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"
	"github.com/rogpeppe/go-internal/testscript"
)

// noSecret is the script command nosecret ARCHIVE TEXT. It searches all files of an OCI archive,
// and all files of its layers, for a text, and fails if it finds the text or no layer.
func noSecret(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: nosecret ARCHIVE TEXT")
	}
	data, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	layers := 0
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		ts.Check(err)
		content, err := io.ReadAll(r)
		ts.Check(err)
		if z, err := gzip.NewReader(bytes.NewReader(content)); err == nil {
			layers++
			content, err = io.ReadAll(z)
			ts.Check(err)
		}
		if bytes.Contains(content, []byte(args[1])) {
			ts.Fatalf("%s contains %q", h.Name, args[1])
		}
	}
	if layers < 5 {
		ts.Fatalf("got %d layers in the archive, want at least 5", layers)
	}
}
