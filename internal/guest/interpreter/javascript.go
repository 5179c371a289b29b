package interpreter

import (
	"runtime"
	"strconv"
	"sync"
)

// javascriptBoot reads the worker's first part from the request pipe and runs it. It is the only
// part that a process list shows.
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
	// TypeScript is JavaScript without its types, which the worker's Node removes if it is recent
	// enough.
	typescriptLanguage = nodeLanguage("typescript")
)

// maxV8Threads is Node's default number of threads.
const maxV8Threads = 4

// v8Threads gives Node as many helper threads as there are processors beside the one that runs the
// program. Each costs a start about a millisecond, and more would have no processor.
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
	}
}
