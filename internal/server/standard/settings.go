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

// Settings compiles the policies and limits for all sandboxes. A policy file that cannot be read
// completely is an error: its missing rules would otherwise not apply.
func Settings(c config.Config) (sandbox.Settings, error) {
	s := sandbox.Settings{
		MaxLive: int(c.MaxLive), MaxPaused: int(c.MaxPaused), SnapshotBudget: c.SnapshotBudget, SnapshotRetention: c.SnapshotRetention,
		DefaultTimeout: c.DefaultTimeout, MaxTimeout: c.MaxTimeout, Retention: c.Retention, Level: c.DefaultLevel,
		AgentsAnswer: c.MCP.Approver == "any",
	}
	if c.DefaultLevel != "" && !slices.Contains(policy.Levels(), c.DefaultLevel) {
		return s, fault.Newf(fault.Invalid, "level_unknown", "default_level: unknown level %q", c.DefaultLevel).
			WithHint("levels are " + strings.Join(policy.Levels(), ", "))
	}
	var err error
	if s.Mounts, err = lifecycle.ParseShares(c.Mounts); err != nil {
		return s, err
	}
	if s.Organisation, err = document("organisation_policy", c.OrganisationPolicy); err != nil {
		return s, err
	}
	if s.Project, err = document("project_policy", c.ProjectPolicy); err != nil {
		return s, err
	}
	// Combine them now, so that an error appears at the start and not with the first sandbox.
	if _, _, err := (sandbox.Access{}).Compile(s); err != nil {
		return s, fmt.Errorf("the policies of organisation and project: %w", err)
	}
	return s, nil
}

// Starts returns the limits of starts.
func Starts(c config.Config) server.Starts {
	return server.Starts{AtOnce: int(c.StartsAtOnce), MaxQueued: int(c.MaxQueued), MaxWait: c.MaxQueueWait}
}

// Connections returns the limits of connections.
func Connections(c config.Config) server.Connections {
	return server.Connections{
		Total: int(c.MaxConnections), PerAddress: int(c.MaxConnectionsPerAddress), Reserve: int(c.ReservedDescriptors),
		Header: c.HeaderTimeout, Idle: c.IdleTimeout,
	}
}

// Record returns the limits of the audit log.
func Record(c config.Config) server.RecordOptions {
	return server.RecordOptions{KeepAge: c.RecordAge, KeepBytes: c.RecordBytes, Checkpoints: c.RecordCheckpoints, Recordings: c.RecordingBytes}
}

// maxPolicy is the policy parser's limit.
const maxPolicy = 1 << 20

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

// DockerOf returns the settings of the engine that uses a Docker Engine.
func DockerOf(c config.Config) Docker {
	return Docker{Host: c.Engines.DockerHost, Runtime: c.Engines.DockerRuntime}
}

// ImagesOf returns the settings of the image store.
func ImagesOf(c config.Config) Images {
	return Images{Registries: c.Images.Registries, Mirrors: c.Images.Mirrors, Insecure: c.Images.Insecure, Budget: c.Images.Budget}
}
