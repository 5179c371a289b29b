package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestFieldOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "info")
	if err := os.WriteFile(path, []byte("MemFree: 1 kB\nMemTotal:   8 kB\nMemTotal: 9 kB\nno colon\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"MemTotal": "8 kB", "MemFree": "1 kB", "Swap": "unknown", "no colon": "unknown"} {
		if got := fieldOf(path, name); got != want {
			t.Errorf("fieldOf %s: got %q, want %q", name, got, want)
		}
	}
	if got := fieldOf(path+".gone", "MemTotal"); got != "unknown" {
		t.Errorf("fieldOf a missing file: got %q, want unknown", got)
	}
}

// TestEveryReportNamesItsHost checks that a report begins with the machine, without which figures
// mean little.
func TestEveryReportNamesItsHost(t *testing.T) {
	var text, encoded bytes.Buffer
	if err := run(t.Context(), flags{only: "none of them"}, &text); err != nil {
		t.Fatal(err)
	}
	kernel := describeHost().Kernel
	if first, _, _ := strings.Cut(text.String(), "\n"); kernel == "" || !strings.Contains(first, "Linux "+kernel) || !strings.Contains(text.String(), "all in 0s") {
		t.Errorf("%q does not name Linux %q", text.String(), kernel)
	}
	if err := run(t.Context(), flags{only: "none of them", json: true}, &encoded); err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(encoded.Bytes(), &r); err != nil || r.Host.Kernel != kernel || r.Host.CPUs != runtime.NumCPU() || r.Host.Load == "unknown" {
		t.Errorf("the report in JSON, %s: got the host %+v, %v", encoded.String(), r.Host, err)
	}
}

func TestFound(t *testing.T) {
	if !found("sh") || found("") || found("no-such-program-of-crannog") {
		t.Error("found: got a missing program, or did not get sh")
	}
}

func TestProcessTime(t *testing.T) {
	const stat = "7 (a b) c) S 1 7 7 0 -1 4194560 100 0 0 0 150 25 300 5 20 0 1 0 100 1000 10"
	if got, err := parseProcessTime(stat); err != nil || got != 4800*time.Millisecond {
		t.Errorf("parseProcessTime: got %v, %v, want 4.8s", got, err)
	}
	for _, bad := range []string{"", "7 (a) S 1", strings.Replace(stat, "150", "x", 1)} {
		if got, err := parseProcessTime(bad); err == nil {
			t.Errorf("parseProcessTime of %q: got %v, want an error", bad, got)
		}
	}
	if got, err := processTime(os.Getpid()); err != nil || got < 0 {
		t.Errorf("processTime of this process: got %v, %v", got, err)
	}
	if got, err := processTime(1 << 30); err == nil {
		t.Errorf("processTime of a missing process: got %v, want an error", got)
	}
}
