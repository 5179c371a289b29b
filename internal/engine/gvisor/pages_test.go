package gvisor

import (
	"reflect"
	"testing"
)

const mapsOfABox = `00400000-02db3000 r-xp 00000000 08:01 131 /usr/bin/crannog
02db3000-05398000 r--p 029b3000 08:01 131 /usr/bin/crannog
05398000-0549e000 rw-p 04f98000 08:01 131 /usr/bin/crannog
0549e000-05600000 rw-p 00000000 00:00 0
7f1200000000-7f1200001000 r--p 00000000 08:01 132 /usr/bin/crannog2
7f1300000000-7f1300001000 r--s 00000000 08:01 131 /usr/bin/crannog
7ffd5e5c3000-7ffd5e5c5000 r-xp 00000000 00:00 0                          [vdso]
`

// Only pages that can be read from the file again unchanged may be unmapped, not pages that the
// process wrote or that belong to another file.
func TestOnlyThePagesOfTheProgramAreLetGo(t *testing.T) {
	got := readOnlySpans(mapsOfABox, "/usr/bin/crannog")
	want := []span{{0x400000, 0x2db3000}, {0x2db3000, 0x5398000}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// The pages are mapped again on access.
func TestAProgramRunsOnAfterItLetItsPagesGo(t *testing.T) {
	spans := programPages()
	if len(spans) == 0 && !linkedWithC {
		t.Fatal("this program's own pages are not found")
	}
	unmapTouched(spans)
	if got := readOnlySpans(mapsOfABox, "/usr/bin/crannog2"); len(got) != 1 {
		t.Errorf("%x", got)
	}
}
