package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/config"
)

const (
	nameMachineBoot    = "microvm, boots"
	nameMachineRestore = "microvm, continues from a snapshot"
)

// machineFlags make emulated machines the engine of all sandboxes of a server, so that the figures
// need no KVM.
var machineFlags = []string{
	"--default-engine", "microvm", "--default-level", "minimal", "--pool", "off", "--microvm-kernel", "tests/unified/kernel",
}

// machineFigures compares a machine that continues from a snapshot with one that boots.
func machineFigures(ctx context.Context, b *bench) (err error) {
	if !found("mmdebstrap") || !found("qemu-system-x86_64") {
		return errors.New("mmdebstrap, which creates the image, or qemu-system-x86_64 is not installed")
	}
	rootTar, file := filepath.Join(b.dir, "microvm.tar"), filepath.Join(b.dir, "microvm-image.tar")
	if out, err := exec.CommandContext(ctx, "mmdebstrap", "--quiet", "--variant=essential", "bookworm", rootTar).CombinedOutput(); err != nil {
		return fmt.Errorf("mmdebstrap: %w: %s", err, out)
	}
	img, err := imageOf(rootTar)
	if err != nil {
		return err
	}
	tag, err := name.NewTag("debian:microvm")
	if err != nil {
		return err
	}
	if err := tarball.WriteToFile(file, tag, img); err != nil {
		return err
	}
	if err := os.Setenv("CRANNOG_MICROVM_EMULATION", config.InsecureForTests); err != nil {
		return err
	}
	defer os.Unsetenv("CRANNOG_MICROVM_EMULATION")
	srv, err := b.serve(ctx, b.crannog, "microvm", machineFlags...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.close()) }()
	if _, err := srv.client.ImportImage(ctx, api.ImportImage{Path: file}, func(api.ImageEvent) {}); err != nil {
		return err
	}
	sb, err := srv.client.Create(ctx, crannog.Image("debian:microvm"), crannog.Timeout(time.Hour))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Kill(ctx)) }()
	if err := sb.CommandContext(ctx, "/bin/echo", "ok").Run(); err != nil {
		return err
	}
	snap, err := sb.Snapshot(ctx, api.CreateSnapshot{})
	if err != nil {
		return err
	}
	s, err := race(ctx, b.n, lifeSandbox(nameMachineBoot, srv.client, crannog.Image("debian:microvm")), lifeSandbox(nameMachineRestore, srv.client, crannog.Template(snap.ID)))
	if err != nil {
		return err
	}
	part := newScores()
	for _, name := range []string{nameMachineBoot, nameMachineRestore} {
		for _, v := range s.by[name+first] {
			part.add(name, v)
		}
	}
	sec := table("microvm", "emulated machines: from nothing to the first byte of `echo ok`", "ms", part)
	sec.against(nameMachineBoot)
	sec.target(nameMachineRestore, "≤ 120 ms", func(r row) bool { return r.P50 <= 120 })
	b.report.add(sec)
	return nil
}
