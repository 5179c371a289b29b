package microvm_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine/microvm/microvmtest"
)

// wantConfined checks that QEMU has the restrictions which the keeper's tests try out, as the kernel
// reports them: another user, no capability, no way to gain one, a filter of system calls, and
// namespaces of its own. The control is this process, which runs as root.
func wantConfined(t *testing.T, dir, id string) {
	t.Helper()
	pid := fmt.Sprint(microvmtest.Machine(t, dir, id))
	want := map[string]string{"NoNewPrivs": "1", "Seccomp": "2", "CapEff": "0000000000000000", "CapPrm": "0000000000000000", "CapInh": "0000000000000000"}
	machine, self := status(t, pid), status(t, "self")
	for field, value := range want {
		if machine[field] != value || self[field] == value && field != "CapInh" {
			t.Errorf("%s of QEMU is %q, want %q; of this process it is %q", field, machine[field], value, self[field])
		}
	}
	for _, field := range []string{"Uid", "Gid"} {
		for id := range strings.FieldsSeq(machine[field]) {
			if len(id) < len("1879048192") {
				t.Errorf("%s of QEMU is %q, want IDs that no user has", field, machine[field])
			}
		}
	}
	if machine["Groups"] != "" {
		t.Errorf("QEMU has the groups %q", machine["Groups"])
	}
	for _, kind := range []string{"net", "ipc", "uts", "pid"} {
		theirs, err := os.Readlink("/proc/" + pid + "/ns/" + kind)
		ours, ourErr := os.Readlink("/proc/self/ns/" + kind)
		if err != nil || ourErr != nil || theirs == ours {
			t.Errorf("the namespace %s of QEMU is %s, and that of this process %s: %v %v", kind, theirs, ours, err, ourErr)
		}
	}
	data, err := os.ReadFile("/proc/" + pid + "/cgroup")
	if err != nil || !strings.Contains(string(data), "/crannog/microvm-"+id) {
		t.Errorf("the control groups of QEMU are %q, %v", data, err)
	}
}

// status returns the fields of a process's status.
func status(t *testing.T, pid string) map[string]string {
	t.Helper()
	data, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(value)
	}
	return fields
}
