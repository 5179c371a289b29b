package standard

import (
	"debug/elf"
	"fmt"

	"github.com/crannog/crannog/internal/fault"
)

// checkStatic returns an error if this program is dynamically linked. gVisor starts the program
// again where the host's libraries are not visible, and the kernel would only report a missing
// file.
func checkStatic() error {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("read this program's file: %w", err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fault.New(fault.Unsupported, "dynamic_binary", "this program is dynamically linked, but gVisor starts it where the host's libraries are not visible").
				WithHint("build it with CGO_ENABLED=0")
		}
	}
	return nil
}
