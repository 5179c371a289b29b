package engine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/guest/guestboot"
)

// Boot is the data that the guest of a sandbox reads before it is ready. It holds the sandbox's
// tokens, so it is never stored, and never passed in arguments, in the environment or in a file.
type Boot struct {
	// Config is the guest's configuration: one JSON object without a line break.
	Config []byte
	// Files is nil or a tar of files that an Archiver wrote. An engine reads it from its beginning,
	// perhaps twice, and leaves it open. If it is an *os.File, an engine on this host can pass the
	// descriptor on.
	Files io.ReaderAt
}

// Stream returns everything that the guest reads: the configuration as one line, followed by the
// files. The guest does not wait for the end of the stream, so any byte stream will do: a pipe, an
// attached terminal, a serial port, a socket.
func (b Boot) Stream() io.Reader {
	line := bytes.NewReader(append(slices.Clip(b.Config), '\n'))
	if b.Files == nil {
		return line
	}
	// The reader has its own offset, because the offset of the caller's file must not move.
	return io.MultiReader(line, io.NewSectionReader(b.Files, 0, math.MaxInt64))
}

// ErrSilent is returned by AwaitReady when the guest ended without printing anything.
var ErrSilent = errors.New("the guest ended before it was ready")

// maxOutput bounds how many bytes are read from a guest that does not report readiness.
const maxOutput = 64 << 10

// AwaitReady reads the guest's output until the guest reports that it listens. It then closes
// output, whose other end the guest has closed by then. If the guest fails, the error holds what it
// printed.
func AwaitReady(ctx context.Context, output io.ReadCloser) error {
	defer context.AfterFunc(ctx, func() { _ = output.Close() })()
	defer output.Close()
	var printed strings.Builder
	lines := bufio.NewScanner(io.LimitReader(output, maxOutput))
	for lines.Scan() {
		if lines.Text() == guestboot.Ready {
			return nil
		}
		printed.WriteString(lines.Text() + "\n")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("the output of the guest cannot be read: %w", err)
	}
	message := strings.TrimSpace(printed.String())
	if message == "" {
		return ErrSilent
	}
	return fmt.Errorf("the guest ended before it was ready: %s", message)
}
