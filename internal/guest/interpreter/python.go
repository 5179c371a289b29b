package interpreter

import (
	"embed"
	"io/fs"
	"path"
	"strings"
	"sync"
)

//go:embed python/*.py javascript/*.js quickjs/*.js bash/*.bash r/*.R java/*.java
var sources embed.FS

// pythonBoot reads the worker's main source from the request pipe and runs it. It is short because
// process lists show it.
const pythonBoot = `import os
f = os.fdopen(3, "rb")
exec(compile(f.read(int(f.readline())), "<crannog>", "exec"), {"__name__": "_crannog", "requests": f})`

var pythonLanguage = &language{
	name:    "python",
	program: "python3",
	// Unbuffered output needs no flush before a fork or a crash.
	args:   []string{"-u", "-c", pythonBoot},
	hello:  sync.OnceValue(func() []byte { return workerProgram("python", "boot.py") }),
	encode: encodeJSON,
}

// part is a source file that a worker loads when it needs it.
type part struct{ name, text string }

// workerProgram encodes the sources in a directory, main first, with further parts.
func workerProgram(dir, main string, further ...part) []byte {
	parts := map[string]string{}
	entries, err := fs.ReadDir(sources, dir)
	if err != nil {
		panic("embedded workers: " + err.Error())
	}
	for _, e := range entries {
		if name := e.Name(); name != main {
			parts[strings.TrimSuffix(name, path.Ext(name))] = string(sourceOf(path.Join(dir, name)))
		}
	}
	for _, p := range further {
		parts[p.name] = p.text
	}
	return encodeSources(string(sourceOf(path.Join(dir, main))), parts)
}

// sourceOf returns the text of a worker's source file.
func sourceOf(name string) []byte {
	text, err := fs.ReadFile(sources, name)
	if err != nil {
		panic("embedded workers: " + err.Error())
	}
	return text
}
