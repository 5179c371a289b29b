// Package compat_test owns the lists of what an earlier version accepted: commands, flags,
// settings, policy documents, paths and fields of /v1. Its tests check that this version accepts
// the same with the same meaning. The lists are of commit bcd05c0; tests/compat/update.sh rewrites
// them.
package compat_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/cli"
	"github.com/crannog/crannog/internal/config"
)

// earlier is the directory in which the earlier commit was checked out and built.
var earlier = flag.String("earlier", "", "directory of the earlier version, with bin/crannog: rewrite the lists from it")

// program runs one command line without a server, an environment or a settings file.
type program func(t *testing.T, args ...string) (code int, stdout, stderr string)

// current runs this version within the process of the test.
func current(t *testing.T, args ...string) (int, string, string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	none := func(string) (string, bool) { return "", false }
	code := cli.Run(t.Context(), args, cli.Env{Stdout: &stdout, Stderr: &stderr, Config: config.Env{Lookup: none, Home: t.TempDir()}})
	return code, stdout.String(), stderr.String()
}

// earlierProgram runs the program of the earlier version.
func earlierProgram(t *testing.T, args ...string) (int, string, string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), filepath.Join(*earlier, "bin/crannog"), args...)
	cmd.Env = []string{"HOME=" + t.TempDir()}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			t.Fatal(err)
		}
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// golden returns a list in testdata. With -earlier it rewrites the list first.
func golden[T any](t *testing.T, name string, list func(program) T) T {
	t.Helper()
	name = filepath.Join("testdata", name)
	if *earlier != "" {
		data, err := json.MarshalIndent(list(earlierProgram), "", " ")
		if err == nil {
			err = os.WriteFile(name, append(data, '\n'), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var value T
	if err := json.Unmarshal(data, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// decodeJSON parses a program's JSON output.
func decodeJSON[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&v); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return v
}
