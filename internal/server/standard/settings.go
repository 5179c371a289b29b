package standard

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/lifecycle"
	"github.com/crannog/crannog/internal/server"
)

// Settings compiles the policies and limits for all sandboxes. It returns an error if a policy file
// cannot be read completely, because the missing rules would otherwise not apply.
func Settings(c config.Config) (sandbox.Settings, error) {
	s := sandbox.Settings{
		MaxLive: int(c.Capacity.Live), MaxPaused: int(c.Capacity.Paused), SnapshotBudget: c.Snapshots.Budget, SnapshotRetention: c.Snapshots.Retention, VolumeBudget: c.Disk.Volumes,
		DefaultTimeout: c.Lifetime.Default, MaxTimeout: c.Lifetime.Max, Retention: c.Lifetime.Retention, Level: c.Policies.Level,
		AgentsAnswer: c.MCP.Approver == "any",
	}
	if c.Policies.Level != "" && !slices.Contains(policy.Levels(), c.Policies.Level) {
		return s, fault.Newf(fault.Invalid, "level_unknown", "default_level: unknown level %q", c.Policies.Level).
			WithHint("levels are " + strings.Join(policy.Levels(), ", "))
	}
	var err error
	if s.Mounts, err = lifecycle.ParseShares(c.HostFiles.Mounts); err != nil {
		return s, err
	}
	if s.Organisation, err = document("organisation_policy", c.Policies.Organisation); err != nil {
		return s, err
	}
	if s.Project, err = document("project_policy", c.Policies.Project); err != nil {
		return s, err
	}
	// Combine the policies now, so that an error appears at the start and not with the first
	// sandbox.
	if _, _, err := (sandbox.Access{}).Compile(s); err != nil {
		return s, fmt.Errorf("the policies of organisation and project: %w", err)
	}
	return s, nil
}

// Starts returns the limits of starts.
func Starts(c config.Config) server.Starts {
	return server.Starts{AtOnce: int(c.Capacity.StartsAtOnce), MaxQueued: int(c.Capacity.Queued), MaxWait: c.Capacity.QueueWait}
}

// Connections returns the limits of connections.
func Connections(c config.Config) server.Connections {
	return server.Connections{
		Total: int(c.HTTP.MaxConnections), PerAddress: int(c.HTTP.MaxPerAddress), Reserve: int(c.HTTP.ReservedDescriptors),
		Header: c.HTTP.HeaderTimeout, Idle: c.HTTP.IdleTimeout,
	}
}

// Audit returns the limits of the audit log.
func Audit(c config.Config) server.AuditOptions {
	return server.AuditOptions{KeepAge: c.Audit.Age, KeepBytes: c.Audit.Bytes, Checkpoints: c.Audit.TreeHeads, Recordings: c.Audit.RecordingBytes}
}

// maxPolicy is the maximum size of a policy that the parser accepts.
const maxPolicy = 1 << 20

// document reads the policy file of a setting. It returns nil if path is "".
func document(setting, path string) (*policy.Document, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPolicy+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	d, err := policy.Parse(text)
	if err != nil {
		return nil, fault.Newf(fault.Invalid, fault.CodeOf(err), "%s: %s: %s", setting, path, fault.PublicText(err)).
			WithHint("crannog policy check " + path)
	}
	return &d, nil
}

// MicroVMOf returns the settings of the engine that uses virtual machines.
func MicroVMOf(c config.Config) MicroVM {
	return MicroVM{Kernel: c.Engines.MicroVMKernel, Emulate: c.Engines.MicroVMEmulation != ""}
}

// PackagesOf returns the settings of the package cache.
func PackagesOf(c config.Config) server.PackageOptions {
	return server.PackageOptions{Budget: c.Disk.Packages, Keyrings: c.PackageKeyrings(), Scanner: c.HostFiles.Scanner}
}

// NoDevice reports whether sandboxes get no network interface although one could be created.
func NoDevice(c config.Config) bool { return c.Engines.Attachment == config.ProxyAttachment }

// DockerOf returns the settings of the engine that uses a Docker Engine.
func DockerOf(c config.Config) Docker {
	return Docker{Host: c.Engines.DockerHost, Runtime: c.Engines.DockerRuntime}
}

// ImagesOf returns the settings of the image store.
func ImagesOf(c config.Config) Images {
	return Images{Registries: c.Images.Registries, Mirrors: c.Images.Mirrors, Insecure: c.Images.Insecure, Budget: c.Images.Budget}
}
