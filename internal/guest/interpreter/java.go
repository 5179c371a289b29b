package interpreter

import (
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/fault"
)

// javaLanguage needs a development kit: java compiles the worker, which evaluates code with jshell.
var javaLanguage = &language{
	name:    "java",
	program: "jshell",
	prepare: javaProgram,
	hello:   func() []byte { return nil },
	encode:  encodeJava,
	slow:    true,
	exits:   true,
}

// javaCommand runs the worker. Its first options shorten the start. The last word is the first of
// Program.Files.
var javaCommand = []string{"java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
	"--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.util=ALL-UNNAMED",
	"--add-opens=java.base/java.io=ALL-UNNAMED",
	"--source", "17", "/proc/self/fd/6"}

// javaProgram returns the virtual machine of the kit whose jshell is at a path, with the worker's
// source as a file.
func javaProgram(jshell string) (Program, error) {
	// A link in /usr/bin may lead to a kit whose java has another link.
	kit, err := filepath.EvalSymlinks(jshell)
	if err != nil {
		return Program{}, fault.Wrap(err, fault.Unsupported, "language_not_installed", "This sandbox cannot run java: "+err.Error())
	}
	source, err := sourceFile("java/Worker.java")
	if err != nil {
		return Program{}, fmt.Errorf("source of the java worker: %w", err)
	}
	return Program{Path: filepath.Join(filepath.Dir(kit), "java"), Argv: javaCommand, Files: []*os.File{source}}, nil
}

// sourceFile returns an unnamed file with the source of a worker.
func sourceFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(filepath.Base(name), unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.WriteAt(sourceOf(name), 0); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// encodeJava encodes a request as a line of words, because Java has no parser for JSON. A renewal
// only changes random numbers: a virtual machine cannot change its directory and variables.
func encodeJava(r request) []byte {
	switch {
	case r.Renew != nil && r.Renew.Seed != 0:
		return fmt.Appendf(nil, "renew %d\n", r.Renew.Seed)
	case r.Renew != nil || r.Drain:
		return nil
	case r.Preload != 0:
		return []byte("preload\n")
	}
	var b strings.Builder
	word := func(s string) { b.WriteString(" =" + base64.StdEncoding.EncodeToString([]byte(s))) }
	fmt.Fprintf(&b, "code %d", r.N)
	word(r.Code)
	for _, name := range slices.Sorted(maps.Keys(r.Env)) {
		word(name)
		word(r.Env[name])
	}
	return []byte(b.String() + "\n")
}
