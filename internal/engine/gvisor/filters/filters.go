// Package filters owns the precompiled seccomp programs of the pinned gVisor version. A build of
// gVisor from the Go module has none and compiles them at every boot, which takes longer than the
// rest of the boot.
package filters

import (
	_ "embed"
	"errors"
	"maps"
	"slices"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
	bootfilter "gvisor.dev/gvisor/runsc/boot/filter"
	goferfilter "gvisor.dev/gvisor/runsc/fsgofer/filter"
)

//go:generate go run ./generate programs.bin

// bootPrograms and goferPrograms are gVisor's registries of programs. They have no setter: a
// release build of gVisor fills them from a generated file in its package. A wrong entry cannot
// weaken a filter by accident: a program is looked up by a name with every option for which it was
// compiled, and a missing program is compiled at boot.

//go:linkname bootPrograms gvisor.dev/gvisor/runsc/boot/filter.precompiledPrograms
var bootPrograms map[string]precompiledseccomp.Program

//go:linkname goferPrograms gvisor.dev/gvisor/runsc/fsgofer/filter.precompiledPrograms
var goferPrograms map[string]precompiledseccomp.Program

// programs is the generated file.
//
//go:embed programs.bin
var programs []byte

// Install registers the programs in this process, which is about to become a gVisor process.
func Install() error {
	boot, gofer, err := Decode(programs)
	if err != nil {
		return errors.Join(errors.New("seccomp programs"), err)
	}
	// ListPrecompiled runs a sync.Once that would otherwise reset the maps later.
	bootfilter.ListPrecompiled()
	goferfilter.ListPrecompiled()
	for _, program := range boot {
		bootPrograms[program.Name] = program
	}
	for _, program := range gofer {
		goferPrograms[program.Name] = program
	}
	return nil
}

// Names returns the names of the installed programs, for tests.
func Names() (boot, gofer []string) {
	return slices.Sorted(maps.Keys(bootPrograms)), slices.Sorted(maps.Keys(goferPrograms))
}
