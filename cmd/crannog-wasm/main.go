// Command crannog-wasm runs one WebAssembly module in a sandbox of the engine wasm, or compiles a
// module for other processes. The engine and the guest start it; it has no use outside of a
// sandbox.
package main

import (
	"os"

	"github.com/crannog/crannog/internal/engine/wasm/runner"
)

func main() { os.Exit(runner.Main(os.Args[1:])) }
