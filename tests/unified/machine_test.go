package unified_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// modules are the kernel modules for access to the host's files, each after its dependencies.
var modules = []string{
	"virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci",
	"netfs", "fscache", "9pnet", "9pnet_virtio", "9p",
}

const (
	kernelDir = "kernel"
	emulator  = "qemu-system-x86_64"
	// hostTag and exchangeTag name the two directories that the machine sees:
	// the host's root, which it can only read, and one to exchange files with.
	hostTag, exchangeTag = "host", "exchange"
	// planName is the name of the plan's file.
	planName = "plan.json"
)

// plan is a list of steps for the emulated machine.
type plan struct {
	Programs string `json:"programs"` // a directory of the host
	Steps    []step `json:"steps"`
}

// step is one script that runs in the machine.
type step struct {
	Name    string        `json:"name"`
	Script  string        `json:"script"`
	Timeout time.Duration `json:"timeout"`

	long      bool // only with -all
	code      int
	want, not []string
}

// outcome is the result of a step.
type outcome struct {
	Code    int           `json:"code"`
	Took    time.Duration `json:"took"`
	Problem string        `json:"problem,omitempty"`

	output string
}

// boot runs a plan in an emulated machine, which has ended when boot returns.
func boot(t *testing.T, p plan) map[string]outcome {
	t.Helper()
	dir := t.TempDir()
	exchange := filepath.Join(dir, "exchange")
	if err := os.Mkdir(exchange, 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(exchange, planName), text, 0o644); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "root.cpio")
	if err := os.WriteFile(root, firstRoot(t), 0o644); err != nil {
		t.Fatal(err)
	}
	limit := 3 * time.Minute // for the boot
	for _, s := range p.Steps {
		limit += s.Timeout
	}
	// The machine must end before the test's own time limit, which would not stop the emulator.
	if end, ok := t.Deadline(); ok {
		limit = min(limit, time.Until(end)-time.Minute)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var console bytes.Buffer
	// Emulation without KVM is slow, but the same on every host. One thread runs both processors in
	// turns. With a thread for each, QEMU 7.2 sometimes runs code that the kernel has replaced (its
	// switch for CPU limits) and hangs.
	cmd := exec.CommandContext(ctx, emulator, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-monitor", "none", "-serial", "stdio",
		"-machine", "q35", "-accel", "tcg,thread=single,tb-size=512", "-cpu", "max,la57=off", "-smp", "2", "-m", "3072",
		"-kernel", filepath.Join(kernelDir, "vmlinuz"), "-initrd", root,
		"-append", "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off random.trust_cpu=on -- "+firstArg,
		"-virtfs", "local,path=/,security_model=none,readonly=on,multidevs=remap,mount_tag="+hostTag,
		"-virtfs", "local,path="+exchange+",security_model=none,mount_tag="+exchangeTag)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &console, &console, time.Second
	began := time.Now()
	err = cmd.Run()
	t.Logf("the machine ran for %s", time.Since(began).Round(time.Second))
	if err != nil {
		t.Errorf("the emulator failed: %v", err)
	}
	outcomes := map[string]outcome{}
	for i, s := range p.Steps {
		var o outcome
		data, err := os.ReadFile(filepath.Join(exchange, resultName(i)))
		if err == nil {
			err = json.Unmarshal(data, &o)
		}
		if err != nil {
			o = outcome{Code: -1, Problem: "the step left no result"}
		}
		output, err := os.ReadFile(filepath.Join(exchange, outputName(i)))
		if err != nil {
			output = []byte(err.Error())
		}
		o.output = string(output)
		outcomes[s.Name] = o
	}
	if t.Failed() || testing.Verbose() {
		t.Logf("console:\n%s", strings.ReplaceAll(console.String(), "\r", ""))
	}
	return outcomes
}

func resultName(step int) string { return fmt.Sprintf("result-%d.json", step) }
func outputName(step int) string { return fmt.Sprintf("output-%d.txt", step) }

// firstRoot returns an archive with this program, which is the machine's first process, and the
// modules.
func firstRoot(t *testing.T) []byte {
	t.Helper()
	var a archive
	for _, dir := range []string{"dev", "host", "modules"} {
		a.add(cpioDirectory, dir, nil)
	}
	if err := a.file("init", "/proc/self/exe"); err != nil {
		t.Fatal(err)
	}
	for _, name := range modules {
		if err := a.file("modules/"+name, filepath.Join(kernelDir, name+".ko")); err != nil {
			t.Fatal(err)
		}
	}
	return a.end()
}
