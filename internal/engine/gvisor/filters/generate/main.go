// Command generate compiles the seccomp programs with which sandboxes start, and writes them to a
// file. It takes half a minute. Run it when the version of gVisor in go.mod changes.
package main

import (
	"fmt"
	"os"
	"strings"

	bootconfig "gvisor.dev/gvisor/runsc/boot/filter/config"
	goferconfig "gvisor.dev/gvisor/runsc/fsgofer/filter/config"

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"

	"github.com/crannog/crannog/internal/engine/gvisor/filters"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run compiles the programs and writes the file.
func run(path string) error {
	boot, err := bootconfig.PrecompiledPrograms()
	if err != nil {
		return err
	}
	gofer, err := goferconfig.PrecompiledPrograms()
	if err != nil {
		return err
	}
	var boots, gofers []precompiledseccomp.Program
	for _, p := range boot {
		if containsAll(p.Name, `Platform="systrap"`, "HostNetwork=false", "NVProxy=false", "TPUProxy=false") && !containsAll(p.Name, "RDMAProxy=true") {
			boots = append(boots, p)
		}
	}
	for _, p := range gofer {
		if containsAll(p.Name, "CgoEnabled=false", "UDSOpenEnabled=false", "UDSCreateEnabled=false") {
			gofers = append(gofers, p)
		}
	}
	data := filters.Encode(boots, gofers)
	fmt.Printf("%d of %d boot programs, %d of %d gofer programs, %d bytes\n",
		len(boots), len(boot), len(gofers), len(gofer), len(data))
	return os.WriteFile(path, data, 0o644)
}

// containsAll reports whether a name contains all parts.
func containsAll(name string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(name, part) {
			return false
		}
	}
	return true
}
