package gvisor

import (
	"reflect"
	"testing"
)

// exampleMaps is the content of /proc/PID/maps of a sandbox's kernel.
const exampleMaps = `00400000-02db3000 r-xp 00000000 08:01 131 /usr/bin/crannog
02db3000-05398000 r--p 029b3000 08:01 131 /usr/bin/crannog
05398000-0549e000 rw-p 04f98000 08:01 131 /usr/bin/crannog
0549e000-05600000 rw-p 00000000 00:00 0
7f1200000000-7f1200001000 r--p 00000000 08:01 132 /usr/bin/crannog2
7f1300000000-7f1300001000 r--s 00000000 08:01 131 /usr/bin/crannog
7ffd5e5c3000-7ffd5e5c5000 r-xp 00000000 00:00 0                          [vdso]
`

// Only pages that can be read from the program's file again may be unmapped: not pages that the
// process wrote, and not pages of another file.
func TestReadOnlySpansOfProgram(t *testing.T) {
	got := readOnlySpans(exampleMaps, "/usr/bin/crannog")
	want := []span{{0x400000, 0x2db3000}, {0x2db3000, 0x5398000}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the spans are %x, want %x", got, want)
	}
}

// The pages are mapped again on access.
func TestProgramContinuesAfterUnmap(t *testing.T) {
	spans := programPages()
	if len(spans) == 0 && !linkedWithC {
		t.Fatal("this program's own pages are not found")
	}
	unmapTouched(spans)
	if got := readOnlySpans(exampleMaps, "/usr/bin/crannog2"); len(got) != 1 {
		t.Errorf("the spans of crannog2 are %x, want one", got)
	}
}

// Addresses that are not understood are left alone, because unmapping a wrong range would end the
// process.
func TestMalformedMappingsAreIgnored(t *testing.T) {
	for _, line := range []string{
		"", "00400000-02db3000 r-xp", "x-02db3000 r-xp 00000000 08:01 131 /p", "00400000-x r-xp 00000000 08:01 131 /p",
		"00400000 r-xp 00000000 08:01 131 /p", "02db3000-00400000 r-xp 00000000 08:01 131 /p", "00400000-00400000 r-xp 00000000 08:01 131 /p",
	} {
		if got := readOnlySpans(line+"\n", "/p"); len(got) != 0 {
			t.Errorf("%q: got the spans %x, want none", line, got)
		}
	}
}
