package enginebench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
)

const (
	// lifetime ends a sandbox that this process could not remove because it was killed.
	lifetime = time.Hour
	// commandTimeout ends a command that hangs.
	commandTimeout = 15 * time.Minute
)

// ServerLab is a Lab that creates its sandboxes through a server.
type ServerLab struct {
	Client *crannog.Client
	// HasPool is true if the server may have a warm pool.
	HasPool bool
}

// Engines lists the engines of the server's host.
func (l ServerLab) Engines(ctx context.Context) ([]api.Engine, error) { return l.Client.Engines(ctx) }

// Warm reports whether the server may have a warm pool.
func (l ServerLab) Warm() bool { return l.HasPool }

// level returns the strictest level of policies that accepts every boundary but none. All engines
// are measured under the same one, so that the policy's own work does not differ between them.
func level(boundary string) string {
	if boundary == "none" {
		return "minimal"
	}
	return "light"
}

// Create creates a sandbox that ends by itself if this process cannot remove it.
func (l ServerLab) Create(ctx context.Context, want Want) (Sandbox, error) {
	options := []crannog.CreateOption{crannog.Engine(want.Engine), crannog.Level(level(want.Boundary)), crannog.Timeout(lifetime)}
	if want.Image != "" {
		options = append(options, crannog.Image(want.Image))
	}
	if want.MemoryBytes > 0 {
		options = append(options, crannog.Limits(api.Limits{MemoryBytes: want.MemoryBytes}))
	}
	switch {
	case want.Packages:
		options = append(options, crannog.Net("dev"))
	case want.Host != "":
		options = append(options, crannog.Allow(want.Host))
	default:
		options = append(options, crannog.Net("none"))
	}
	sb, err := l.Client.Create(ctx, options...)
	if err != nil {
		return nil, err
	}
	return serverSandbox{l.Client, sb}, nil
}

// serverSandbox is a sandbox of a server.
type serverSandbox struct {
	client *crannog.Client
	*crannog.Sandbox
}

// Run runs a command with the sandbox's user.
func (s serverSandbox) Run(ctx context.Context, argv ...string) (string, error) {
	result, err := s.Exec(ctx, api.Exec{Cmd: argv, TimeoutSeconds: commandTimeout.Seconds()})
	switch {
	case err != nil:
		return "", err
	case result.Hit != api.HitNone:
		return "", fmt.Errorf("%s: it met a limit: %s", argv[0], result.Hit)
	case result.ExitCode != 0:
		return "", fmt.Errorf("%s: exit code %d: %s", argv[0], result.ExitCode, lastLine(result.Stderr))
	}
	return result.Stdout, nil
}

// Write writes a file.
func (s serverSandbox) Write(ctx context.Context, path string, content []byte) error {
	return s.FS().WithContext(ctx).WriteFile(strings.TrimPrefix(path, "/"), content, 0o600)
}

// savesMemory reports whether the engine can save memory, and an error if it saves nothing.
func (s serverSandbox) savesMemory() (bool, error) {
	saves := s.Info().Saves
	if len(saves) == 0 {
		return false, errAbsent("the engine saves no state")
	}
	return slices.Contains(saves, "memory"), nil
}

// Snapshot takes a snapshot, with memory if the engine can, and removes it.
func (s serverSandbox) Snapshot(ctx context.Context) (string, error) {
	memory, err := s.savesMemory()
	if err != nil {
		return "", err
	}
	taken, err := s.Sandbox.Snapshot(ctx, api.CreateSnapshot{FilesOnly: !memory})
	if err != nil {
		return "", err
	}
	return savedParts(memory), s.client.RemoveSnapshot(context.WithoutCancel(ctx), taken.ID)
}

// Fork copies the sandbox, with memory if the engine can, and removes the copy.
func (s serverSandbox) Fork(ctx context.Context) (string, error) {
	memory, err := s.savesMemory()
	if err != nil {
		return "", err
	}
	copies, err := s.Sandbox.Fork(ctx, api.CreateFork{Count: 1, TimeoutSeconds: lifetime.Seconds(), FilesOnly: !memory})
	for _, c := range copies {
		err = errors.Join(err, c.Kill(context.WithoutCancel(ctx)))
	}
	return savedParts(memory), err
}

// Remove ends the sandbox.
func (s serverSandbox) Remove(ctx context.Context) error { return s.Kill(ctx) }

// savedParts names what a saved state has.
func savedParts(memory bool) string {
	if memory {
		return "memory and files"
	}
	return "files"
}
