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

// Boot is what the guest of a sandbox reads before it is ready. It is never stored: it
// holds the sandbox's tokens, so it is never put in argv, environment or a file either.
type Boot struct {
	// Config is the guest's configuration: one JSON object without a line break.
	Config []byte
	// Files, if not nil, is a tar of files that Archiver wrote. An engine reads it from
	// its beginning, perhaps twice, and leaves it open. It may be an *os.File, which an
	// engine on this host can hand on.
	Files io.ReaderAt
}

// Stream returns what the guest reads, from the beginning: the configuration as one
// line, and then the files. The guest needs no end of the stream to continue. So any byte
// stream will do: a pipe, an attached terminal, a serial port, a socket.
func (b Boot) Stream() io.Reader {
	line := bytes.NewReader(append(slices.Clip(b.Config), '\n'))
	if b.Files == nil {
		return line
	}
	// The file is read at offsets of this reader's own, because the caller's offset must not move.
	return io.MultiReader(line, io.NewSectionReader(b.Files, 0, math.MaxInt64))
}

// ErrSilent is returned by AwaitReady when the guest ended without printing anything.
var ErrSilent = errors.New("the guest ended before it was ready")

// maxWords bounds how much output is read of a guest that does not report readiness.
const maxWords = 64 << 10

// AwaitReady reads what the guest prints until the guest reports that it listens. Then it closes
// output, which the guest has closed by then too. An error holds what the guest printed instead.
func AwaitReady(ctx context.Context, output io.ReadCloser) error {
	defer context.AfterFunc(ctx, func() { _ = output.Close() })()
	defer output.Close()
	var said strings.Builder
	lines := bufio.NewScanner(io.LimitReader(output, maxWords))
	for lines.Scan() {
		if lines.Text() == guestboot.Ready {
			return nil
		}
		said.WriteString(lines.Text() + "\n")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("the guest is not heard: %w", err)
	}
	words := strings.TrimSpace(said.String())
	if words == "" {
		return ErrSilent
	}
	return fmt.Errorf("the guest ended before it was ready: %s", words)
}
