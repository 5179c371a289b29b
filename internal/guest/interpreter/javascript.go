package interpreter

import (
	"runtime"
	"strconv"
	"sync"
)

// javascriptBoot reads the worker's main source from the request pipe and runs it. It is short
// because process lists show it.
const javascriptBoot = `const fs = require("fs");
let b = Buffer.alloc(0), end, size = -1;
while (size < 0 || b.length < end + 1 + size) {
  const chunk = Buffer.alloc(65536), n = fs.readSync(3, chunk);
  if (n === 0) process.exit(1);
  b = Buffer.concat([b, chunk.subarray(0, n)]);
  if (size < 0 && (end = b.indexOf(10)) >= 0) size = Number(b.subarray(0, end));
}
const code = b.subarray(end + 1, end + 1 + size).toString();
new (require("vm").Script)(code, { filename: "<crannog>" }).runInThisContext()(require, 3, b.subarray(end + 1 + size));`

var (
	javascriptLanguage = nodeLanguage("javascript")
	// TypeScript runs as JavaScript without its types, which a recent Node removes.
	typescriptLanguage = nodeLanguage("typescript")
)

// maxV8Threads is Node's default number of threads.
const maxV8Threads = 4

// v8Threads returns the number of helper threads for Node: the number of processors besides the one
// that runs the program. Each thread adds about a millisecond to the start, and more threads would
// have no processor.
func v8Threads() string {
	return "--v8-pool-size=" + strconv.Itoa(max(1, min(maxV8Threads, runtime.NumCPU()-1)))
}

func nodeLanguage(name string) *language {
	return &language{
		name:    name,
		program: "node",
		args:    []string{v8Threads(), "-e", javascriptBoot},
		hello:   sync.OnceValue(func() []byte { return workerProgram("javascript", "main.js") }),
		encode:  encodeJSON,

		lateInterrupt: true,
	}
}
