package standard

import (
	"debug/elf"
	"fmt"

	"github.com/crannog/crannog/internal/fault"
)

// checkStatic refuses a program that needs the host's libraries: gVisor
// starts it again where they cannot be seen, and the kernel then says no more
// than that a file is missing.
func checkStatic() error {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("read our own program: %w", err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fault.New(fault.Unsupported, "dynamic_binary", "this program is linked to the host's libraries, and gVisor starts it where there are none").
				WithHint("build it with CGO_ENABLED=0")
		}
	}
	return nil
}
