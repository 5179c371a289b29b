package census_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/guest/census"
)

// The decoded census equals the encoded one.
func TestRead(t *testing.T) {
	taken, err := census.Take("/proc")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(taken)
	if err != nil {
		t.Fatal(err)
	}
	got, err := census.Read(bytes.NewReader(text))
	if taken.Bound(); err != nil || !reflect.DeepEqual(got, taken) {
		t.Errorf("Read: got %+v, %v, want %+v", got, err, taken)
	}
	got, err = census.Read(strings.NewReader(`{"later":{"a":[1]},"cut":true,"processes":null,"ports":[7]}`))
	if err != nil || !got.Cut || len(got.Processes) != 0 || len(got.Ports) != 1 {
		t.Errorf("Read: got %+v, %v, want Cut, no processes and one port", got, err)
	}
	for _, bad := range []string{"", "[]", "{", `{"processes":{}}`, `{"processes":[`, `{"processes":[{]}`, `{"ports":["x"]}`, `{"cut":1}`} {
		if got, err := census.Read(strings.NewReader(bad)); err == nil {
			t.Errorf("Read of %q: got %+v, want an error", bad, got)
		}
	}
}

// P45: an attacker who has replaced the guest sends the largest possible list, in a form that takes
// a hundred times as much memory.
func TestReadLimitsMemory(t *testing.T) {
	const size = census.MaxBytes - 100
	for name, text := range map[string]string{
		"processes": `{"processes":[{}` + strings.Repeat(",{}", size/3) + `],"ports":[7]}`,
		"arguments": `{"processes":[{"args":[""` + strings.Repeat(`,""`, size/3) + `]}],"ports":[7]}`,
		"ports":     `{"ports":[7` + strings.Repeat(",7", size/2) + `]}`,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := census.Read(strings.NewReader(text))
		runtime.ReadMemStats(&after)
		if err == nil && !got.Cut || len(got.Processes) > census.MaxProcesses || len(got.Ports) > census.MaxPorts {
			t.Errorf("%s: %v, %d processes, %d ports, cut %v", name, err, len(got.Processes), len(got.Ports), got.Cut)
		}
		allocated := after.TotalAlloc - before.TotalAlloc
		if t.Logf("%s: %d MiB", name, allocated>>20); allocated > 100<<20 {
			t.Errorf("%s: Read allocated %d MiB, want at most 100", name, allocated>>20)
		}
	}
}

// FuzzRead checks that Read applies its limits to any answer.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"processes":[{"pid":1,"args":["a"],"cpu_ns":-1}],"ports":[7],"cut":false}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := census.Read(bytes.NewReader(text))
		if len(c.Processes) > census.MaxProcesses || len(c.Ports) > census.MaxPorts {
			t.Errorf("Read exceeded its limits: got %d processes, %d ports, %v", len(c.Processes), len(c.Ports), err)
		}
	})
}
