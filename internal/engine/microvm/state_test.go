package microvm

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// valid is the description of a machine.
var valid = description{MemoryBytes: minMemory, Processors: 1, Image: "sha256:0", RootDisk: strings.Repeat("a", 32) + ".erofs"}

// A state may have been changed on its way. What it says about the machine becomes arguments of QEMU
// and the path of a file.
func TestDescriptionIsChecked(t *testing.T) {
	if err := valid.check(); err != nil {
		t.Fatalf("control: %v", err)
	}
	for name, change := range map[string]func(*description){
		"no memory": func(d *description) { d.MemoryBytes = 0 }, "negative memory": func(d *description) { d.MemoryBytes = -4096 },
		"half a page": func(d *description) { d.MemoryBytes++ }, "too much memory": func(d *description) { d.MemoryBytes = 1 << 60 },
		"no processor": func(d *description) { d.Processors = 0 }, "too many processors": func(d *description) { d.Processors = 1 << 20 },
		"path of the disk": func(d *description) { d.RootDisk = "../" + d.RootDisk }, "no disk": func(d *description) { d.RootDisk = "" },
		"a disk without a size": func(d *description) { d.Own = true }, "a size without a disk": func(d *description) { d.OwnBytes = 4096 },
		"negative size": func(d *description) { d.Own, d.OwnBytes = true, -4096 }, "half a page of a disk": func(d *description) { d.Own, d.OwnBytes = true, 100 },
	} {
		d := valid
		change(&d)
		if d.check() == nil {
			t.Errorf("%s is accepted: %+v", name, d)
		}
	}
}

func FuzzParseDescription(f *testing.F) {
	data, err := json.Marshal(valid)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("{}"))
	f.Add(bytes.Repeat([]byte(" "), maxDescription+1))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := parseDescription(bytes.NewReader(data))
		if err == nil && (d.MemoryBytes+d.OwnBytes <= 0 || strings.Contains(d.RootDisk, "/")) {
			t.Errorf("accepted %+v", d)
		}
	})
}
