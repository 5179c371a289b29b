package runner

import (
	"context"
	"testing"

	"github.com/tetratelabs/wazero"
)

// No module makes the compiler panic. It compiles each module or returns an error. An instance of
// the outline with the native code is like one of the module.
func FuzzModule(f *testing.F) {
	f.Add(tiny)
	f.Add(trapping)
	f.Add([]byte("\x00asm\x01\x00\x00\x00\x63\xff\xff\xff\xff\x0f"))
	for _, c := range mergedModules {
		f.Add(c.module)
	}
	for _, module := range unmergedModules {
		f.Add(module)
	}
	f.Fuzz(func(t *testing.T, module []byte) {
		_, _ = outline(module) // it may not panic, whether the module is valid or not
		if hasLargeNumber(module) {
			return
		}
		ctx := t.Context()
		r := wazero.NewRuntimeWithConfig(ctx, settings().WithMemoryLimitPages(16))
		defer r.Close(context.Background())
		compiled, err := r.CompileModule(ctx, module)
		if (compiled == nil) == (err == nil) {
			t.Errorf("the compiler returned the module %v and the error %v, want one of them", compiled, err)
		}
		if err == nil && canCompare(module) {
			compareInstances(t, module)
		}
	})
}

// hasLargeNumber reports whether a module may have a number of more than 21 bits. wazero allocates
// memory for as many parts of a module as it claims to have, up to 200 GB. The compiler's process has
// a limit for that, at which it ends, but the one of a test does not.
func hasLargeNumber(module []byte) bool {
	continued := 0 // bytes in sequence that end no number
	for _, b := range module {
		if continued++; b < 0x80 {
			continued = 0
		}
		if continued == 3 {
			return true
		}
	}
	return false
}

// canCompare reports whether two instances of a valid module can be compared: it has no function
// that runs at the start, which may not end, and no tables, which may be large.
func canCompare(module []byte) bool {
	const sectionTable, sectionStart = 4, 8
	for rest := module[headerBytes:]; len(rest) > 0; {
		size, used, err := number(rest[1:])
		if err != nil || rest[0] == sectionTable || rest[0] == sectionStart {
			return false
		}
		rest = rest[1+used+size:]
	}
	return true
}
