// Command generate compiles the seccomp programs that boxes start with and
// writes them as JSON. It takes half a minute; run it when the version of
// gVisor in go.mod changes.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	bootconfig "gvisor.dev/gvisor/runsc/boot/filter/config"
	goferconfig "gvisor.dev/gvisor/runsc/fsgofer/filter/config"

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(path string) error {
	boot, err := bootconfig.PrecompiledPrograms()
	if err != nil {
		return err
	}
	gofer, err := goferconfig.PrecompiledPrograms()
	if err != nil {
		return err
	}
	var out struct{ Boot, Gofer []precompiledseccomp.Program }
	for _, p := range boot {
		if has(p.Name, `Platform="systrap"`, "HostNetwork=false", "NVProxy=false", "TPUProxy=false") && !has(p.Name, "RDMAProxy=true") {
			out.Boot = append(out.Boot, p)
		}
	}
	for _, p := range gofer {
		if has(p.Name, "CgoEnabled=false") {
			out.Gofer = append(out.Gofer, p)
		}
	}
	data, err := json.Marshal(out)
	if err != nil {
		return err
	}
	fmt.Printf("%d of %d boot programs, %d of %d gofer programs, %d bytes\n",
		len(out.Boot), len(boot), len(out.Gofer), len(gofer), len(data))
	return os.WriteFile(path, data, 0o644)
}

func has(name string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(name, part) {
			return false
		}
	}
	return true
}
