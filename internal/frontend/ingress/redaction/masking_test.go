package redaction

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/crannog/crannog/internal/egress/redact"
	"github.com/crannog/crannog/internal/sandbox"
)

// TestNewValuesAreRedactedInRunningStream checks that a value that becomes known while a process
// runs is redacted from then on. A value that is no longer in use stays redacted.
func TestNewValuesAreRedactedInRunningStream(t *testing.T) {
	const later = "tk-later-9dQ7wE5r"
	var now atomic.Pointer[redact.Redactor]
	before, after := testMask(t, sealedValue), testMask(t, later, sealedValue)
	now.Store(before.Text())
	in, wire := io.Pipe()
	r := newEvents(in, true, now.Load)
	redactText := func(text string) string {
		t.Helper()
		go func() {
			if _, err := wire.Write(message(t, true, stdout, text)); err != nil {
				t.Error(err)
			}
		}()
		buffer := make([]byte, 4096)
		n, err := r.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		h, ok := readStream(t, buffer[:n], true)
		if !ok {
			t.Fatalf("unreadable stream: got %q", buffer[:n])
		}
		return string(bytes.Join(h.outputs[stdout], nil))
	}
	if got := redactText(later + "." + sealedValue + "."); got != later+".[redacted:KEY]." {
		t.Errorf("before: %q", got)
	}
	now.Store(after.Text())
	if got := redactText(later + "." + sealedValue + "."); got != "[redacted:KEY].[redacted:KEY]." {
		t.Errorf("after: %q", got)
	}
	now.Store(nil) // without a redactor, the stream keeps its last values
	if got := redactText(later + "."); got != "[redacted:KEY]." {
		t.Errorf("off: %q", got)
	}
}

// TestAnnouncedSizesAllocateNothing checks that no memory is allocated for an announced size. A
// message that is larger than any event ends the stream.
func TestAnnouncedSizesAllocateNothing(t *testing.T) {
	for size, code := range map[uint32]string{maxEvent: io.ErrUnexpectedEOF.Error(), maxEvent + 1: "too large", 1 << 31: "too large"} {
		wire := append(binary.BigEndian.AppendUint32([]byte{0}, size), "few"...)
		r := newEvents(bytes.NewReader(wire), false, testMask(t, sealedValue).Text)
		if out, err := io.ReadAll(r); len(out) > 0 || err == nil || !strings.Contains(err.Error(), code) {
			t.Errorf("%d: %q, %v", size, out, err)
		}
		if cap(r.messages.large) > keepLarge {
			t.Errorf("%d: the buffer has %d bytes", size, cap(r.messages.large))
		}
	}
	long := strings.NewReader(strings.Repeat("x", maxLine+1))
	if out, err := io.ReadAll(newLines(long, testMask(t, sealedValue))); len(out) > 0 || err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("line above the limit: got %d bytes, %v", len(out), err)
	}
}

// TestUnrequestedCompressionEndsStream checks a message that is compressed although the request did
// not allow that.
func TestUnrequestedCompressionEndsStream(t *testing.T) {
	wire := append([]byte("\x01\x00\x00\x00\x05"), "xxxxx"...)
	m := testMask(t, sealedValue)
	for name, r := range map[string]io.Reader{
		"events": newEvents(bytes.NewReader(wire), true, m.Text), "frames": &frameReader{source: bytes.NewReader(wire), redactor: m.Bytes},
	} {
		if out, err := io.ReadAll(r); len(out) > 0 || err == nil || !strings.Contains(err.Error(), "compressed") {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
}

// chunks returns the stream of a process that prints 4 MiB, in events of a size.
func chunks(b *testing.B, asJSON bool, size int) []byte {
	text := strings.Repeat("2026-11-21 12:00:00 INFO request served in 12 ms path=/v1/items status=200\n", 1<<16)
	var wire []byte
	for len(wire) < 4<<20 {
		at := len(wire) % (len(text) - size)
		wire = append(wire, message(b, asJSON, stdout, text[at:at+size])...)
	}
	return wire
}

func BenchmarkEvents(b *testing.B) {
	patterns, err := sandbox.NewRedactor(nil, sandbox.RedactorOptions{Outputs: true, Patterns: true})
	if err != nil {
		b.Fatal(err)
	}
	for name, asJSON := range map[string]bool{"binary": false, "json": true} {
		for _, size := range []int{32 << 10, 80} {
			wire := chunks(b, asJSON, size)
			b.Run(name+"/"+map[bool]string{true: "large", false: "small"}[size > 100], func(b *testing.B) {
				b.SetBytes(int64(len(wire)))
				for b.Loop() {
					if _, err := io.Copy(io.Discard, newEvents(bytes.NewReader(wire), asJSON, patterns.Text)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkShort measures a command that prints one line.
func BenchmarkShort(b *testing.B) {
	patterns, err := sandbox.NewRedactor(nil, sandbox.RedactorOptions{Outputs: true, Patterns: true})
	if err != nil {
		b.Fatal(err)
	}
	wire := append(message(b, false, stdout, "hello\n"), "\x02\x00\x00\x00\x02{}"...)
	for b.Loop() {
		if _, err := io.Copy(io.Discard, newEvents(bytes.NewReader(wire), false, patterns.Text)); err != nil {
			b.Fatal(err)
		}
	}
}

// TestFindingS6NamesOfHeaders checks a value that is the name of a header. HTTP changes the case of
// names, so a plain search for the value would not find it.
func TestFindingS6NamesOfHeaders(t *testing.T) {
	m := testMask(t, sealedValue)
	h := http.Header{"X-Kept": {"yes"}}
	for _, name := range []string{sealedValue, http.CanonicalHeaderKey(sealedValue), strings.ToUpper(sealedValue), http.TrailerPrefix + strings.ToUpper(sealedValue)} {
		h[name] = []string{"x"}
	}
	Header(h, m)
	for name := range h {
		if strings.Contains(strings.ToLower(name), strings.ToLower(sealedValue)) {
			t.Errorf("the header %s was not removed", name)
		}
	}
	if h.Get("X-Kept") != "yes" {
		t.Error("control: another header was removed")
	}
}
