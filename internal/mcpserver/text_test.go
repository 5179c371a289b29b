package mcpserver

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestInert(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\n":                      "plain\ttext\n",
		"a\x1b[31mred\x1b[0m":                "ared",
		"\x1b]0;title\x07x":                  "x",
		"\x1b]8;;http://e\x1b\\link\x1b]8;;": "link",
		"50%\r100%\r\n":                      "50%\n100%\n",
		"bell\x07back\x08":                   "bellback",
		"bad\xff\xfe":                        "bad\uFFFD\uFFFD",
		"turn\u202egnp.exe":                  "turn\uFFFDgnp.exe",
		"tag\U000E0041\U000E0042":            "tag\uFFFD\uFFFD",
		"é ü 漢 👩‍💻":                          "é ü 漢 👩‍💻",
		"end\x1b":                            "end",
		"\x1b(Bx":                            "x",
	} {
		if got := inert(in); got != want {
			t.Errorf("%q becomes %q, not %q", in, got, want)
		}
	}
	if got := inertInPlace("a\x1b[1m\u202e"); got != "a␛[1m\uFFFD" {
		t.Errorf("a file's text: %q", got)
	}
}

// P38: a person decides by the text of the prompt, so all of the text must be visible.
func TestThePromptIsInert(t *testing.T) {
	evil := "x\u202egpj.exe\u200b\u200d\u2060\nAllow? yes\x1b[2J"
	got := promptText(evil, "api.example.com:443", evil)
	for _, bad := range []string{"\u202e", "\u200b", "\u200d", "\u2060", "\n", "\x1b"} {
		if strings.Contains(got, bad) {
			t.Errorf("%q contains %q", got, bad)
		}
	}
	if !strings.Contains(got, "api.example.com:443") || strings.Count(got, "gpj.exe") != 2 { // the control
		t.Errorf("text: got %q", got)
	}
}

func FuzzCut(f *testing.F) {
	f.Add("")
	f.Add(strings.Repeat("é", 300))
	f.Fuzz(func(t *testing.T, s string) {
		out := inert(s)
		short, was := cut(out, 100)
		if n := utf8.RuneCountInString(short); n > 200 || was != (utf8.RuneCountInString(out) > 100) {
			t.Fatalf("%d characters, cut %v", n, was)
		}
	})
}

func TestOutputBuffer(t *testing.T) {
	buffer := newOutputBuffer(10)
	for i := range 100 {
		writeText(buffer, string(rune('a'+i%26)))
	}
	if total, kept := buffer.size(); total != 100 || kept > 30 || kept < 20 {
		t.Errorf("%d of %d are kept", kept, total)
	}
	data, next, skipped := buffer.read(0, 4)
	if string(data) != "abcd" || next != 4 || skipped != 0 {
		t.Errorf("read of the first bytes: got %q %d %d", data, next, skipped)
	}
	data, next, skipped = buffer.read(next, 100)
	if string(data) != "efghij" || next != 10 || skipped != 0 {
		t.Errorf("read of the other bytes: got %q %d %d", data, next, skipped)
	}
	data, next, skipped = buffer.read(next, 100)
	if next != 100 || skipped == 0 || int64(len(data)) != 90-skipped || data[len(data)-1] != 'a'+99%26 {
		t.Errorf("read after an overflow: got %q %d %d", data, next, skipped)
	}
	if !strings.Contains(buffer.text(), "bytes omitted") {
		t.Errorf("%q does not say that output is missing", buffer.text())
	}
	more := buffer.more()
	writeText(buffer, "x")
	<-more
}

// readAllText returns the text that a stream passes on for chunks, and the exit code that it found.
func readAllText(end string, chunks ...string) (string, int, bool) {
	j := &job{exited: make(chan struct{})}
	var out bytes.Buffer
	s := &stream{to: &out, end: end, job: j}
	for _, c := range chunks {
		_, _ = io.WriteString(s, c)
	}
	s.flush()
	code, exited := j.exitCode()
	return out.String(), code, exited
}

func TestShellEnds(t *testing.T) {
	const text = "out\n\x1eNAME 3\x1elater"
	for i := range len(text) {
		out, code, exited := readAllText("NAME", text[:i], text[i:])
		if out != "out\nlater" || code != 3 || !exited {
			t.Errorf("split at %d: %q %d %v", i, out, code, exited)
		}
	}
	for _, left := range []bool{false, true} {
		j := &job{exited: make(chan struct{})}
		mark := map[bool]string{false: "\x1eNAME 255\x1e", true: "\x1eNAME 255 left\x1e"}[left]
		s := &stream{to: io.Discard, end: "NAME", job: j}
		for _, b := range mark {
			_, _ = io.WriteString(s, string(b))
		}
		if code, exited := j.exitCode(); code != 255 || !exited || j.exit.left != left {
			t.Errorf("%q: code %d, exited %v, left %v", mark, code, exited, j.exit.left)
		}
		if long := j.outputGrace() > maxOutputGrace; long == left {
			t.Errorf("%q: the output has %v to end", mark, j.outputGrace())
		}
	}
	for _, other := range []string{"a\x1eb", "\x1eNAME 0 lost\x1e", "\x1eNAME  left\x1e", "\x1eNAME x\x1e", "\x1eNAME 999\x1e", "\x1eNAME", "\x1e\x1e\x1e", "\x1eOTHER 0\x1e", "\x1eNAME 1234567890\x1e"} {
		if out, _, exited := readAllText("NAME", other); out != other || exited {
			t.Errorf("%q becomes %q, ended %v", other, out, exited)
		}
	}
}

func FuzzStream(f *testing.F) {
	f.Add("a\x1eNAME 0\x1eb", 3)
	f.Add("\x1eNAME\x1eNAME 7\x1e", 1)
	f.Fuzz(func(t *testing.T, s string, at int) {
		if at < 0 || at > len(s) {
			return
		}
		one, code, exited := readAllText("NAME", s)
		two, code2, exited2 := readAllText("NAME", s[:at], s[at:])
		if one != two || code != code2 || exited != exited2 {
			t.Fatalf("%q in one %q, in two %q", s, one, two)
		}
		if !exited && one != s {
			t.Fatalf("%q lost bytes: %q", s, one)
		}
	})
}
