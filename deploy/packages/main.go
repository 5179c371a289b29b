// Command packages makes the packages of Crannog from a built program: deb, rpm, tarball, OCI image,
// and their checksums. The same program and time give the same bytes. It is a module of its own, so
// that its dependencies are not those of Crannog.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// release is what is packaged.
type release struct {
	program string    // the built binary
	tree    string    // the repository
	out     string    // directory of the packages
	version string    // of the packages, without v
	arch    string    // as Go names it
	time    time.Time // of all files
	base    string    // archive of an image below ours, or ""
}

func main() {
	var r release
	var seconds int64
	flag.StringVar(&r.program, "program", "bin/crannog", "built `program`")
	flag.StringVar(&r.tree, "tree", ".", "`directory` of the repository")
	flag.StringVar(&r.out, "out", "bin/packages", "`directory` of the packages")
	flag.StringVar(&r.version, "version", "0.0.0", "`version` of the packages")
	flag.StringVar(&r.arch, "arch", runtime.GOARCH, "architecture, as Go names it")
	flag.Int64Var(&seconds, "time", 0, "`seconds` since 1970 that all files get, such as those of the commit")
	flag.StringVar(&r.base, "base", "", "`archive` (docker save) of the image that the OCI image extends; it has the programs that sandboxes of the template base see")
	flag.Parse()
	r.time = time.Unix(seconds, 0).UTC()
	if err := r.make(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
}

func (r release) make(ctx context.Context) error {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	staging, err := os.MkdirTemp("", "crannog-packages-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(staging)
	files, err := r.files(ctx, staging)
	if err != nil {
		return err
	}
	var made []string
	for _, build := range []func([]file) (string, error){r.deb, r.rpm, r.tarball, r.image} {
		name, err := build(files)
		if err != nil {
			return err
		}
		made = append(made, name)
	}
	return r.checksums(made)
}

// generate runs the program for its man pages and completions.
func (r release) generate(ctx context.Context, staging string) error {
	program, err := filepath.Abs(r.program)
	if err != nil {
		return err
	}
	run := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, program, args...)
		// No setting of the machine that builds may change the texts.
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + staging, "CRANNOG_STATE=" + filepath.Join(staging, "state")}
		var errText strings.Builder
		cmd.Stderr = &errText
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("crannog %s: %w: %s", strings.Join(args, " "), err, errText.String())
		}
		return out, nil
	}
	if _, err := run("man", filepath.Join(staging, "man")); err != nil {
		return err
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script, err := run("completion", shell)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(staging, shell), script, 0o644); err != nil {
			return err
		}
	}
	return nil
}
