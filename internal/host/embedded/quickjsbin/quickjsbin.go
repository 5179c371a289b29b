// Package quickjsbin owns the host's copy of QuickJS, a WebAssembly module that runs JavaScript.
// quickjs/fetch.sh gets it from the npm registry and checks its digest. Its licences are beside it.
package quickjsbin

import (
	"embed"
	"fmt"

	"github.com/crannog/crannog/internal/host/embedded"
)

//go:embed quickjs/quickjs.wasm
var module embed.FS

const embeddedName = "quickjs/quickjs.wasm"

// Digest is the SHA-256 of the module.
const Digest = "c0bd8f296e18cf074969f6401b9ecb72609a1323818ec2b9bf7a8f8d740d1363"

// Path returns the module's path below dir, where it is written on first use.
func Path(dir string) (string, error) {
	path, err := embedded.Program(module, embeddedName, dir)
	if err != nil {
		return "", fmt.Errorf("module for JavaScript: %w", err)
	}
	return path, nil
}
