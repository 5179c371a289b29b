package standard_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/server"
	"github.com/crannog/crannog/internal/server/standard"
)

func TestSettingsReadsPoliciesAndLimits(t *testing.T) {
	t.Parallel()
	policyFile := func(text string) string {
		path := filepath.Join(t.TempDir(), "policy.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	valid := "policy: v1\nnetwork: {unlisted: deny}\n"
	c := config.Config{
		Policies: config.Policies{Organisation: policyFile(valid), Project: policyFile(valid), Level: "strict"},
		Capacity: config.Capacity{Live: 7, Paused: 8}, Snapshots: config.Snapshots{Budget: 9, Retention: 10}, Lifetime: config.Lifetime{Default: time.Minute, Max: time.Hour, Retention: 2 * time.Hour},
	}
	s, err := standard.Settings(c)
	if err != nil || s.Organisation == nil || s.Project == nil || s.Organisation.Network.Unlisted != "deny" || s.Level != "strict" ||
		s.MaxLive != 7 || s.MaxPaused != 8 || s.SnapshotBudget != 9 || s.SnapshotRetention != 10 || s.DefaultTimeout != time.Minute || s.MaxTimeout != time.Hour || s.Retention != 2*time.Hour {
		t.Fatalf("got %+v (%v), want both policies and the limits of the settings", s, err)
	}
	p, _, err := (sandbox.Access{}).Compile(s)
	if err != nil || p.Level() != "strict" || len(p.Layers()) < 4 {
		t.Errorf("compiled policy: got %+v (%v), want the level strict", p, err)
	}

	// A policy file that cannot be read completely is rejected.
	for name, text := range map[string]string{
		"unknown field": valid + "networks: {}\n", "twice": valid + valid, "two documents": valid + "---\n" + valid,
		"empty": "", "too long": valid + strings.Repeat("#\n", 1<<20), "not text": "\x00",
	} {
		bad := c
		bad.Policies.Organisation = policyFile(text)
		if _, err := standard.Settings(bad); err == nil || !strings.Contains(err.Error(), "organisation_policy: ") {
			t.Errorf("organisation's policy, %s: got %v, want an error that names the setting", name, err)
		}
		bad = c
		bad.Policies.Project = policyFile(text)
		if _, err := standard.Settings(bad); err == nil || !strings.Contains(err.Error(), "project_policy: ") {
			t.Errorf("project's policy, %s: got %v, want an error that names the setting", name, err)
		}
	}
	c.Policies.Project = filepath.Join(t.TempDir(), "none")
	if _, err := standard.Settings(c); err == nil {
		t.Error("Settings accepted a policy file that does not exist")
	}
	c.Policies.Project = t.TempDir()
	if _, err := standard.Settings(c); err == nil {
		t.Error("Settings accepted a directory as a policy file")
	}
	c.Policies.Project, c.HostFiles.Mounts = "", "relative"
	if _, err := standard.Settings(c); err == nil {
		t.Error("Settings accepted a shared directory with a relative path")
	}
	c.HostFiles.Mounts, c.Policies.Level = "", "king"
	if _, err := standard.Settings(c); fault.CodeOf(err) != "level_unknown" {
		t.Errorf("unknown level: got %v, want level_unknown", err)
	}
}

// Every setting of connections, images and engines reaches the part that applies it.
func TestSettingsReachTheirParts(t *testing.T) {
	t.Parallel()
	c := config.Config{
		HTTP:     config.HTTP{MaxConnections: 1, MaxPerAddress: 2, ReservedDescriptors: 3, HeaderTimeout: 4, IdleTimeout: 5},
		Capacity: config.Capacity{StartsAtOnce: 6, Queued: 7, QueueWait: 8},
		Audit:    config.Audit{Age: 9, Bytes: 10, TreeHeads: "heads", RecordingBytes: 11},
		Images:   config.Images{Registries: "a.test", Mirrors: "b.test=c.test", Insecure: "d.test", Budget: 12},
		Engines:  config.Engines{MicroVMKernel: "/boot/k", MicroVMEmulation: "yes", DockerHost: "unix:///d", DockerRuntime: "runsc", Attachment: config.ProxyAttachment},
	}
	for name, one := range map[string]struct{ got, want any }{
		"connections": {standard.Connections(c), server.Connections{Total: 1, PerAddress: 2, Reserve: 3, Header: 4, Idle: 5}},
		"starts":      {standard.Starts(c), server.Starts{AtOnce: 6, MaxQueued: 7, MaxWait: 8}},
		"audit log":   {standard.Audit(c), server.AuditOptions{KeepAge: 9, KeepBytes: 10, Checkpoints: "heads", Recordings: 11}},
		"images":      {standard.ImagesOf(c), standard.Images{Registries: "a.test", Mirrors: "b.test=c.test", Insecure: "d.test", Budget: 12}},
		"microvm":     {standard.MicroVMOf(c), standard.MicroVM{Kernel: "/boot/k", Emulate: true}},
		"docker":      {standard.DockerOf(c), standard.Docker{Host: "unix:///d", Runtime: "runsc"}},
		"no device":   {standard.NoDevice(c), true},
	} {
		if one.got != one.want {
			t.Errorf("%s: got %+v, want %+v", name, one.got, one.want)
		}
	}
	none := config.Config{}
	if standard.NoDevice(none) || standard.MicroVMOf(none).Emulate {
		t.Error("without settings: got no device or an emulated processor")
	}
}
