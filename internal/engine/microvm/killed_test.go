package microvm_test

import (
	"context"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/microvm/microvmtest"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// create makes a sandbox whose guest needs no configuration beyond its tokens.
func create(t *testing.T, e engine.Engine, id string) {
	t.Helper()
	err := e.Create(t.Context(), engine.Spec{
		ID: id, Hostname: "box", Image: image(t).OCI(), Limits: engine.Limits{MemoryBytes: 256 << 20, MilliCPU: 1000},
		Boot: engine.Boot{Config: []byte(`{"sandbox_id":"` + id + `","access_token":"a","control_token":"c","default_user":"user"}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Remove(context.WithoutCancel(t.Context()), id); err != nil {
			t.Error(err)
		}
	})
}

// P57: a sandbox whose machine is killed counts as crashed, and a machine ends with its keeper. A
// process that did not create the sandbox detects both, and nothing remains of either.
func TestKilledMachineOrKeeper(t *testing.T) {
	image(t)
	dir := t.TempDir()
	e := open(false)(t, dir)
	for name, kill := range map[string]func(t *testing.T, id string) int{
		"machine": func(t *testing.T, id string) int { t.Helper(); return microvmtest.Machine(t, dir, id) },
		"keeper": func(t *testing.T, _ string) int {
			t.Helper()
			keepers, machines := microvmtest.Processes(t, dir)
			if len(keepers) != 1 || len(machines) != 1 {
				t.Fatalf("one sandbox has the keepers %v and the machines %v", keepers, machines)
			}
			pid, err := strconv.Atoi(keepers[0])
			if err != nil {
				t.Fatal(err)
			}
			return pid
		},
	} {
		if name != "machine" && !hosttest.Full() {
			continue // each boots a machine
		}
		t.Run(name, func(t *testing.T) {
			create(t, e, name)
			if os.Geteuid() == 0 {
				wantConfined(t, dir, name)
			}
			second := open(false)(t, dir) // as after kill -9 of the server
			var conn net.Conn
			conn, err := second.Dial(t.Context(), name, guestboot.Port)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := syscall.Kill(kill(t, name), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			exit, err := second.Wait(hosttest.Context(t), name)
			if err != nil || exit.Reason != engine.ReasonCrashed {
				t.Errorf("Wait returned %+v, %v; want crashed", exit, err)
			}
			if list, err := second.List(t.Context()); err != nil || len(list) != 1 || list[0].State != engine.Stopped {
				t.Errorf("list: %+v %v", list, err)
			}
			hosttest.Eventually(t, "the machine ends with its keeper", func() bool {
				keepers, machines := microvmtest.Processes(t, dir)
				return len(keepers)+len(machines) == 0
			})
			if err := second.Remove(t.Context(), name); err != nil {
				t.Error(err)
			}
			if left := microvmtest.Residue(t, dir); left["groups"] != 0 {
				t.Errorf("left: %v", left)
			}
			if _, err := os.Stat(dir + "/microvm/" + name); !os.IsNotExist(err) {
				t.Errorf("the sandbox's directory: %v", err)
			}
		})
	}
}
