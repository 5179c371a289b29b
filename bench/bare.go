package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// firstByte collects output and the time of its first byte.
type firstByte struct {
	buf bytes.Buffer
	at  time.Time
}

func (f *firstByte) Write(p []byte) (int, error) {
	if f.at.IsZero() && len(p) > 0 {
		f.at = time.Now()
	}
	return f.buf.Write(p)
}

// requireOutput returns an error if the measured program did not do its work.
func (f *firstByte) requireOutput(want string) error {
	if got := strings.TrimSpace(f.buf.String()); got != want {
		return fmt.Errorf("printed %q, not %q", got, want)
	}
	return nil
}

// hostCommand runs a program on the host, outside of sandboxes.
func hostCommand(ctx context.Context, stdout io.Writer, argv ...string) error {
	return hostCommandIn(ctx, nil, stdout, argv...)
}

// hostCommandIn is hostCommand with an input.
func hostCommandIn(ctx context.Context, stdin io.Reader, stdout io.Writer, argv ...string) error {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, &stderr
	// Programs get an empty home directory, because a login shell would load a user's settings,
	// which sandboxes do not have.
	cmd.Env = []string{"HOME=/nonexistent", "PATH=" + os.Getenv("PATH")}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return nil
}

// bare returns a contender that runs a program on the host.
func bare(name string, argv ...string) contender {
	return contender{name, func(ctx context.Context, s *scores) error {
		began := time.Now()
		if err := hostCommand(ctx, nil, argv...); err != nil {
			return err
		}
		s.addTime(name, time.Since(began))
		return nil
	}}
}

// stockDo returns the fastest command that runs a program in an unmodified gVisor: without network
// and control groups.
func (b *bench) stockDo(argv ...string) []string {
	root := b.dir + "/stock"
	return append([]string{b.runsc, "--root=" + root, "--network=none", "--ignore-cgroups", "do"}, argv...)
}

// bubblewrap returns a command that runs a program in new namespaces of every kind, with the host's
// programs read-only and without network.
func bubblewrap(argv ...string) []string {
	return append(append([]string{"bwrap"}, bubblewrapView()...), argv...)
}

// bubblewrapView returns the arguments that define what the program sees.
func bubblewrapView() []string {
	args := []string{"--unshare-all", "--die-with-parent", "--new-session", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"}
	args = append(args, "--ro-bind", "/usr", "/usr")
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		link, err := os.Readlink(dir)
		if err == nil {
			args = append(args, "--symlink", link, dir)
		} else if _, err := os.Stat(dir); err == nil {
			args = append(args, "--ro-bind", dir, dir)
		}
	}
	return args
}
