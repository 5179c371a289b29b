package enginebench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// place is where programs run: the host, or the sandboxes of one engine.
type place struct {
	name     string
	boundary string // "" on the host
	live     Sandbox
	dir      string // on the host: the directory in which programs write
	// limit is the memory limit of the last sandbox.
	limit int64
}

func (p *place) isHost() bool { return p.boundary == "" }

// run runs a command in the place's live sandbox or on the host.
func (p *place) run(ctx context.Context, argv ...string) (string, error) {
	if !p.isHost() {
		return p.live.Run(ctx, argv...)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = p.dir
	output, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", fmt.Errorf("%s: %w: %s", argv[0], err, lastLine(string(exit.Stderr)))
	}
	return string(output), err
}

// write writes a file into the directory in which programs write.
func (p *place) write(ctx context.Context, name string, content []byte) error {
	if p.isHost() {
		return os.WriteFile(filepath.Join(p.dir, name), content, 0o600)
	}
	return p.live.Write(ctx, p.path(name), content)
}

// path returns the path of a file in the directory in which programs write.
func (p *place) path(name string) string {
	if p.isHost() {
		return filepath.Join(p.dir, name)
	}
	return "/tmp/" + name
}

// has reports whether a program is installed there.
func (p *place) has(ctx context.Context, program string) (bool, error) {
	if p.isHost() {
		_, err := exec.LookPath(program)
		return err == nil, nil
	}
	answer, err := p.run(ctx, "sh", "-c", `command -v "$1" >/dev/null 2>&1 && echo yes || echo no`, "sh", program)
	return strings.TrimSpace(answer) == "yes", err
}

// open makes the place ready for a measurement.
func (p *place) open(ctx context.Context, lab Lab, want Want) (err error) {
	if p.isHost() {
		p.dir, err = os.MkdirTemp("", "crannog-bench-engines-")
		return err
	}
	p.live, err = lab.Create(ctx, want)
	return err
}

// close removes what open made, also when ctx has ended.
func (p *place) close(ctx context.Context) error {
	if p.isHost() {
		dir := p.dir
		if p.dir = ""; dir == "" {
			return nil
		}
		return os.RemoveAll(dir)
	}
	live := p.live
	if p.live = nil; live == nil {
		return nil
	}
	return live.Remove(context.WithoutCancel(ctx))
}

// lastLine returns the last line of a text that is not empty.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
