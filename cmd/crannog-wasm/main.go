// Command crannog-wasm runs one WebAssembly module inside a sandbox of the engine wasm, or compiles
// one for others. The engine and the guest start it; it is of no use outside.
package main

import (
	"os"

	"github.com/crannog/crannog/internal/engine/wasm/runner"
)

func main() { os.Exit(runner.Main(os.Args[1:])) }
