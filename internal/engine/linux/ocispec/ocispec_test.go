package ocispec_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/linux/ocispec"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// spec returns the specification as JSON.
func spec() []byte {
	data, err := json.MarshalIndent(ocispec.Build(ocispec.Params{
		RootPath: "/state/run/.root", Guest: "/.crannog/crannog-guest", Arguments: []string{"--channel"}, Hostname: "box", Limits: engine.Limits{},
	}), "", "  ")
	if err != nil {
		panic(err)
	}
	return append(data, '\n')
}

// A change of a capability, mount, limit or masked path changes the golden file, so that a reviewer
// sees it.
func TestBuildMatchesGoldenFile(t *testing.T) {
	path := filepath.Join("testdata", "default.json")
	if *update {
		if err := os.WriteFile(path, spec(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(spec(), want) {
		t.Errorf("the specification changed; if this is intended, run: go test ./internal/engine/linux/ocispec -update\n%s", spec())
	}
}

// The mount that masks a path can be neither written nor removed.
func TestCoverIsReadOnly(t *testing.T) {
	for _, m := range []specs.Mount{ocispec.Cover("/workspace/rules.md", "/state/run/.root/workspace/rules.md"), ocispec.Blank("/workspace/secrets")} {
		for _, option := range []string{"ro", "nosuid", "nodev"} {
			if !slices.Contains(m.Options, option) {
				t.Errorf("the mount at %s has no option %s: %v", m.Destination, option, m.Options)
			}
		}
	}
	if m := ocispec.Blank("/workspace/secrets"); m.Type != "tmpfs" || filepath.IsAbs(m.Source) {
		t.Errorf("the mount of a hidden path shows a file of the host: %+v", m)
	}
}

func TestCapabilitiesExcludeDangerous(t *testing.T) {
	s := ocispec.Build(ocispec.Params{})
	for _, name := range []string{
		"CAP_SYS_ADMIN", "CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_PTRACE", "CAP_MKNOD", "CAP_NET_ADMIN",
		"CAP_NET_RAW", "CAP_DAC_READ_SEARCH", "CAP_SYS_RESOURCE", "CAP_SYS_BOOT", "CAP_SYS_TIME", "CAP_BPF", "CAP_PERFMON",
	} {
		for set, have := range map[string][]string{
			"bounding": s.Process.Capabilities.Bounding, "effective": s.Process.Capabilities.Effective,
			"permitted": s.Process.Capabilities.Permitted, "inheritable": s.Process.Capabilities.Inheritable,
			"ambient": s.Process.Capabilities.Ambient,
		} {
			if slices.Contains(have, name) {
				t.Errorf("%s is in the %s set", name, set)
			}
		}
	}
	if !s.Process.NoNewPrivileges {
		t.Error("new privileges are possible")
	}
}

// Programs can change the files of a volume only if it is not read-only, and never run as another
// user or open a device because of it.
// Without the setting, the specification has no trace of it. With it, root still cannot raise its
// limits, trace programs of others, or load code into the kernel.
func TestContainersAddCapabilities(t *testing.T) {
	without, with := ocispec.Build(ocispec.Params{}), ocispec.Build(ocispec.Params{Containers: true})
	has := func(s *specs.Spec, name string) bool {
		c := s.Process.Capabilities
		return slices.Contains(c.Bounding, name) && slices.Contains(c.Effective, name) && slices.Contains(c.Permitted, name)
	}
	for _, name := range []string{"CAP_AUDIT_WRITE", "CAP_MKNOD", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SETFCAP", "CAP_SYS_ADMIN"} {
		if !has(with, name) || has(without, name) {
			t.Errorf("%s: with containers %t, without %t", name, has(with, name), has(without, name))
		}
	}
	for _, name := range []string{"CAP_SYS_RESOURCE", "CAP_SYS_PTRACE", "CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_BOOT", "CAP_SYS_TIME", "CAP_DAC_READ_SEARCH", "CAP_BPF", "CAP_PERFMON"} {
		if has(with, name) {
			t.Errorf("containers give %s", name)
		}
	}
	cgroups := func(s *specs.Spec) bool {
		return slices.ContainsFunc(s.Mounts, func(m specs.Mount) bool { return m.Type == "cgroup" })
	}
	if !cgroups(with) || cgroups(without) {
		t.Errorf("cgroups: with containers %t, without %t", cgroups(with), cgroups(without))
	}
	if slices.Contains(with.Linux.ReadonlyPaths, "/proc/sys") || !slices.Contains(without.Linux.ReadonlyPaths, "/proc/sys") {
		t.Error("/proc/sys is read-only with containers, or writable without")
	}
	if len(with.Linux.MaskedPaths) != len(without.Linux.MaskedPaths) || !with.Process.NoNewPrivileges {
		t.Error("containers unmask paths or permit new privileges")
	}
}

func TestVolumeMount(t *testing.T) {
	for readOnly, access := range map[bool]string{false: "rw", true: "ro"} {
		m := ocispec.Volume(engine.Volume{Source: "/s", Target: "/data", ReadOnly: readOnly})
		if m.Source != "/s" || m.Destination != "/data" || m.Type != "bind" || !slices.Equal(m.Options, []string{"bind", access, "nosuid", "nodev"}) {
			t.Errorf("read-only %t: got %+v", readOnly, m)
		}
	}
}
