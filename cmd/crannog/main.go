// Command crannog is server, command line and gVisor runtime in one binary.
package main

import (
	"context"
	"os"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/cli"
	"github.com/crannog/crannog/internal/config"
)

// version is set by the linker.
var version = "dev"

func main() {
	// Before anything else: this process may be an engine's.
	crannog.Main()
	os.Exit(cli.Run(context.Background(), os.Args[1:], cli.Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Vars: os.Environ(), Config: config.Host(), Version: version,
	}))
}
