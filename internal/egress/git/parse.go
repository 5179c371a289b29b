package git

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/fault"
)

const (
	// longestHead limits how much of a push is held in memory. It is enough for some ten thousand
	// commands.
	longestHead = 1 << 20
	// maxCommands limits the size of an approval request and of an audit entry.
	maxCommands = 1000
)

// Parse reads the head of a push: everything before the pack. The HTTP server has decoded chunks
// already. encoding is the header Content-Encoding. Parse rejects everything that git itself does
// not send, or that a server could interpret differently. Examples are a NUL in a later line, two
// commands for one ref, and a signed list of commands in addition to the plain one. Nothing of a
// rejected push may be forwarded. On an error the Request is not nil: it has no commands, and its
// Refusal gives git the reason.
func Parse(body io.Reader, encoding string) (*Request, error) {
	r := &Request{}
	source := bufio.NewReader(body)
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
	case "gzip", "x-gzip":
		plain, err := gzip.NewReader(source)
		if err != nil {
			return r, fault.Wrap(err, fault.Invalid, "git_push_malformed", "a push is declared as compressed and is not")
		}
		r.Decoded = true
		source = bufio.NewReader(plain)
	default:
		return r, fault.New(fault.Unsupported, "git_push_encoding", "a push is compressed in a way that cannot be inspected").
			WithHint("send it plain or as gzip")
	}
	var seen bytes.Buffer
	head := &limited{r: io.TeeReader(source, &seen), left: longestHead}
	if err := r.read(head); err != nil {
		r.Commands, r.Body = nil, nil
		return r, err
	}
	if r.Probe() {
		// Commands after the flush would reach the server without a decision.
		if _, err := source.Peek(1); !errors.Is(err, io.EOF) {
			return r, malformed("a push without commands has more data")
		}
	}
	r.Head = bytes.Clone(seen.Bytes())
	next, err := source.Peek(len(packMagic))
	r.Whole = string(next) == packMagic || len(next) == 0 && errors.Is(err, io.EOF)
	r.Body = io.MultiReader(&seen, source)
	return r, nil
}

// packMagic is the beginning of each pack.
const packMagic = "PACK"

// limited is like io.LimitedReader, but returns an error at the limit instead of EOF.
type limited struct {
	r    io.Reader
	left int
}

var errLong = errors.New("the list of commands is too long")

func (l *limited) Read(p []byte) (int, error) {
	if len(p) > l.left {
		return 0, errLong
	}
	n, err := l.r.Read(p)
	l.left -= n
	return n, err
}

func (r *Request) read(head io.Reader) error {
	first := true
	for {
		line, err := readPacket(head)
		if err != nil {
			return unreadable(err)
		}
		if line == nil {
			break
		}
		text, capabilities, listed := strings.Cut(strings.TrimSuffix(string(line), "\n"), "\x00")
		if id, ok := strings.CutPrefix(text, "shallow "); ok && !listed {
			if !isID(id) {
				return malformed("a shallow line has no object ID")
			}
			r.Shallow = append(r.Shallow, id)
			continue
		}
		if listed {
			if !first {
				return malformed("a push lists its capabilities twice")
			}
			r.Capabilities = strings.Fields(capabilities)
		}
		first = false
		if text == "push-cert" {
			return fault.New(fault.Unsupported, "git_push_signed", "signed pushes cannot be inspected").
				WithHint("push with --no-signed, or set push.gpgSign to false")
		}
		c, err := command(text)
		if err != nil {
			return err
		}
		if len(r.Commands) == maxCommands {
			return fault.Newf(fault.Exhausted, "git_push_too_long", "a push changes more than %d refs", maxCommands).
				WithHint("push fewer refs at a time")
		}
		if slices.ContainsFunc(r.Commands, func(o Command) bool { return o.Ref == c.Ref }) {
			return malformed("a push changes one ref twice")
		}
		r.Commands = append(r.Commands, c)
	}
	if len(r.Commands) == 0 || !r.has("push-options") {
		return nil
	}
	for {
		line, err := readPacket(head)
		if err != nil {
			return unreadable(err)
		}
		if line == nil {
			return nil
		}
		option := strings.TrimSuffix(string(line), "\n")
		if !printable(option) {
			return malformed("a push option has characters that cannot be displayed")
		}
		r.Options = append(r.Options, option)
	}
}

// command parses "old new ref".
func command(text string) (Command, error) {
	before, rest, _ := strings.Cut(text, " ")
	after, ref, _ := strings.Cut(rest, " ")
	c := Command{Ref: ref, Old: before, New: after}
	switch {
	case !isID(before) || !isID(after) || len(before) != len(after):
		return c, malformed("a command of a push does not have two object IDs")
	case !isRef(ref):
		return c, malformed("a command of a push has an invalid ref")
	case c.Creates() && c.Deletes():
		return c, malformed("a command of a push changes nothing")
	}
	return c, nil
}

// isID accepts the object IDs of SHA-1 and SHA-256 repositories.
func isID(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

func unreadable(err error) error {
	if errors.Is(err, errLong) {
		return fault.Wrap(err, fault.Exhausted, "git_push_too_long", "a push's list of commands is too long").
			WithHint("push fewer refs at a time")
	}
	if errors.Is(err, errPacket) && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		return fault.Wrap(err, fault.Invalid, "git_push_malformed", "a push ends before its commands do")
	}
	return fault.Wrap(err, fault.Invalid, "git_push_malformed", "a push cannot be read")
}

func malformed(text string) error { return fault.New(fault.Invalid, "git_push_malformed", text) }
