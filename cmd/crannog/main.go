// Command crannog is the server, the command line and the gVisor runtime in one binary.
package main

import (
	"context"
	"os"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/cli"
	_ "github.com/crannog/crannog/internal/cli/first" // initialised before all others
	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/host/calm"
)

// version is set by the linker.
var version = "dev"

func main() {
	// This comes first, because an engine may have started this process.
	crannog.Main()
	// Most commands end before garbage collection pays off.
	calm.DelayGC(2*time.Second, 64<<20)
	_ = calm.Monitor() // without root this has no effect
	os.Exit(cli.Run(context.Background(), os.Args[1:], cli.Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Vars: os.Environ(), Config: config.Host(), Version: version,
	}))
}
