package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
)

func TestBootStream(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "files.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("tar"); err != nil {
		t.Fatal(err)
	}
	for want, b := range map[string]engine.Boot{
		"{}\n":       {Config: []byte("{}")},
		"{}\ntar":    {Config: []byte("{}"), Files: f},
		"{}\nstring": {Config: []byte("{}"), Files: strings.NewReader("string")},
	} {
		for range 2 { // an engine may start again from the beginning
			if got, err := io.ReadAll(b.Stream()); string(got) != want || err != nil {
				t.Errorf("the stream is %q, %v; want %q", got, err, want)
			}
		}
	}
	if at, err := f.Seek(0, io.SeekCurrent); at != 3 || err != nil {
		t.Errorf("the offset of the caller's file is %d, %v", at, err)
	}
}

// The configuration contains tokens, so it must not be part of the specification, which is stored.
func TestBootIsNotStored(t *testing.T) {
	spec := engine.Spec{ID: "a", Boot: engine.Boot{Config: []byte("secret")}}
	data, err := json.Marshal(spec)
	if err != nil || strings.Contains(string(data), "Config") || strings.Contains(string(data), "c2VjcmV0") {
		t.Errorf("the stored specification is %s, %v; want no boot configuration", data, err)
	}
	if spec = spec.Bare(); spec.Boot.Config != nil {
		t.Error("a bare specification has a configuration")
	}
}

func TestAwaitReadyReportsOutput(t *testing.T) {
	for output, want := range map[string]string{
		"ready\n":                "",
		"a warning\nready\nmore": "",
		"":                       engine.ErrSilent.Error(),
		"no such file\n":         "before it was ready: no such file",
		"already\n":              "already",
	} {
		err := engine.AwaitReady(t.Context(), io.NopCloser(strings.NewReader(output)))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("output %q: got %v, want %q", output, err, want)
		}
	}
	out, in := io.Pipe()
	defer in.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := engine.AwaitReady(ctx, out); !errors.Is(err, context.Canceled) {
		t.Errorf("a guest without output: %v", err)
	}
}
