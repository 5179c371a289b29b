package filters_test

import (
	"reflect"
	"testing"

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"

	"github.com/crannog/crannog/internal/engine/gvisor/filters"
)

func TestDecodeReadsEncodedPrograms(t *testing.T) {
	boot := []precompiledseccomp.Program{
		{Name: "one", Bytecode32: []uint32{1, 0xffffffff}, VarOffsets: map[string][]int{"a": {0, 7}, "b": {}}},
		{Name: "two", Bytecode32: []uint32{3}, VarOffsets: map[string][]int{}},
	}
	gofer := []precompiledseccomp.Program{{Name: "three", Bytecode32: []uint32{}, VarOffsets: map[string][]int{"c": {1}}}}
	data := filters.Encode(boot, gofer)
	gotBoot, gotGofer, err := filters.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(gotBoot, boot) || !reflect.DeepEqual(gotGofer, gofer) {
		t.Errorf("read %v and %v, want %v and %v", gotBoot, gotGofer, boot, gofer)
	}
	for n := range data {
		if _, _, err := filters.Decode(data[:n]); err == nil {
			t.Errorf("Decode accepted the first %d of %d bytes", n, len(data))
		}
	}
}
