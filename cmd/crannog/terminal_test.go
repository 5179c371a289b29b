package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"html"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/audit/asciicast"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

var update = flag.Bool("update", false, "write docs/images/terminal.svg from a run of the program")

const (
	terminalPicture = "../../docs/images/terminal.svg"
	terminalColumns = 84
)

// terminalCommands are the commands of the README's recording.
var terminalCommands = []string{
	`crannog run -- sh -c 'uname -sr; echo $((6*7))'`,
	`crannog run -- sh -c 'echo "// fixed" >> main.go'`,
	`crannog diff`,
	`crannog run -- curl -sS https://example.com`,
	`crannog audit verify`,
}

// TestTerminalPicture records the commands on a terminal. With -update it draws the picture.
// Otherwise it compares the commands and the numbers of lines with the picture. The words on a
// line may differ, because other tests check them.
func TestTerminalPicture(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	state := stateIn(t, "s")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var recording bytes.Buffer
	w, err := asciicast.NewWriter(&recording, asciicast.Header{Cols: terminalColumns, Rows: 24, Type: "xterm-256color"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, command := range terminalCommands {
		at := time.Duration(i) * pauseOfCommand
		if err := w.Mark(at, command); err != nil {
			t.Fatal(err)
		}
		if err := w.Output(at, 0, runOnTerminal(t, dir, state, command)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	lines := recordedLines(t, &recording)
	text := strings.Join(plainLines(lines), "\n")
	for _, want := range []string{"\n42\n", "1 file changed", "+// fixed", "blocked example.com", "\nok: "} {
		if !strings.Contains(text+"\n", want) {
			t.Errorf("%q is not on the terminal:\n%s", want, text)
		}
	}
	if data, err := os.ReadFile(filepath.Join(dir, "main.go")); err != nil || string(data) != "package main\n" {
		t.Errorf("the file outside is %q, %v", data, err)
	}
	servetest.NothingLeft(t, state)
	if *update && !t.Failed() {
		if err := os.WriteFile(terminalPicture, []byte(drawTerminal(lines)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	picture, err := os.ReadFile(terminalPicture)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := shapeOf(picturedLines(string(picture))), shapeOf(plainLines(lines)); !slices.Equal(got, want) {
		t.Errorf("the picture shows %q and the terminal %q; run: go test -run TerminalPicture ./cmd/crannog -update", got, want)
	}
}

// runOnTerminal runs a command on a new terminal and returns its output.
func runOnTerminal(t *testing.T, dir, state, command string) []byte {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	number, err := unix.IoctlGetUint32(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: terminalColumns, Row: 24}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + filepath.Dir(binary) + ":/usr/bin:/bin", "CRANNOG_STATE=" + state, "HOME=/nonexistent-home", "TERM=xterm-256color", "LANG=C.UTF-8"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tty.Close()
	out, err := io.ReadAll(master)
	if err != nil && !errors.Is(err, unix.EIO) { // EIO: the last holder of the terminal closed it
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out
}

// terminalSpan is text in one style: the numbers of ECMA-48's graphic rendition.
type terminalSpan struct{ style, text string }

// recordedLines reads a recording. A command's line begins with a dollar sign.
func recordedLines(t *testing.T, recording io.Reader) (lines [][]terminalSpan) {
	t.Helper()
	r, err := asciicast.NewReader(recording)
	if err != nil {
		t.Fatal(err)
	}
	var screen asciicast.Screen
	for {
		event, err := r.Next()
		if errors.Is(err, io.EOF) {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
		switch event.Code {
		case asciicast.Marker:
			lines = append(lines, []terminalSpan{{"prompt", "$ "}, {"1", event.Data}})
		case asciicast.Output:
			shown := strings.ReplaceAll(string(screen.Append(nil, event.Data)), "\x00", "")
			lines = append(lines, styledLines(strings.TrimRight(shown, "\r\n"))...)
		}
	}
}

// eraseLine goes back to the beginning of a line and clears it.
const eraseLine = "\r\x1b[K"

var rendition = regexp.MustCompile(`\x1b\[([0-9;]*)m`)

// styledLines divides printed text into lines of spans.
func styledLines(text string) (lines [][]terminalSpan) {
	style := ""
	for l := range strings.SplitSeq(text, "\n") {
		if erased := strings.LastIndex(l, eraseLine); erased >= 0 {
			l = l[erased+len(eraseLine):] // a progress message, which a slow machine prints
		}
		l = strings.ReplaceAll(l, "\r", "")
		var spans []terminalSpan
		for {
			at := rendition.FindStringSubmatchIndex(l)
			if at == nil {
				break
			}
			if at[0] > 0 {
				spans = append(spans, terminalSpan{style, l[:at[0]]})
			}
			style = l[at[2]:at[3]]
			if style == "0" {
				style = ""
			}
			l = l[at[1]:]
		}
		lines = append(lines, append(spans, terminalSpan{style, l}))
	}
	return lines
}

func plainLines(lines [][]terminalSpan) (plain []string) {
	for _, spans := range lines {
		var b strings.Builder
		for _, s := range spans {
			b.WriteString(s.text)
		}
		plain = append(plain, b.String())
	}
	return plain
}

// shapeOf returns the commands and the number of lines that each printed.
func shapeOf(lines []string) (shape []string) {
	printed := 0
	for _, l := range lines {
		if command, ok := strings.CutPrefix(l, "$ "); ok {
			shape = append(shape, fmt.Sprint(printed), command)
			printed = 0
			continue
		}
		printed++
	}
	return append(shape, fmt.Sprint(printed))
}

const (
	letterWidth, lineHeight = 843, 20 // a letter's width in hundredths of a pixel, and a line's height in pixels
	pauseOfCommand          = 1600 * time.Millisecond
	pauseOfLine             = 120 * time.Millisecond
)

// drawTerminal draws lines that appear one after the other. The pauses are constants, so that the
// same lines result in the same picture. Without animation all lines are visible.
func drawTerminal(lines [][]terminalSpan) string {
	width, height := terminalColumns*letterWidth/100+40, len(lines)*lineHeight+64
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n", width, height, width, height)
	b.WriteString("<title>Crannog on a terminal</title>\n<style>\n" +
		"text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d5d9e0;white-space:pre}\n" +
		"g{animation:appear 1ms backwards}\n@keyframes appear{from{opacity:0}}\n" +
		"@media (prefers-reduced-motion:reduce){g{animation:none}}\n" +
		".s1{font-weight:bold;fill:#fff}.s31{fill:#ff7b72}.s32{fill:#7ee787}.s33{fill:#e3b341}.s36{fill:#79c0ff}.sprompt{fill:#8b949e}\n</style>\n")
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="8" fill="#10141a"/>`+"\n", width, height)
	for i, fill := range []string{"#ff5f57", "#febc2e", "#28c840"} {
		fmt.Fprintf(&b, `<circle cx="%d" cy="20" r="6" fill="%s"/>`+"\n", 22+20*i, fill)
	}
	at := time.Duration(0)
	for i, spans := range lines {
		if spans[0].style == "prompt" && i > 0 {
			at += pauseOfCommand
		} else {
			at += pauseOfLine
		}
		fmt.Fprintf(&b, `<g style="animation-delay:%dms"><text x="20" y="%d">`, at.Milliseconds(), 56+i*lineHeight)
		for _, s := range spans {
			if s.style == "" {
				b.WriteString(html.EscapeString(s.text))
				continue
			}
			fmt.Fprintf(&b, `<tspan class="s%s">%s</tspan>`, s.style, html.EscapeString(s.text))
		}
		b.WriteString("</text></g>\n")
	}
	return b.String() + "</svg>\n"
}

var (
	picturedText = regexp.MustCompile(`<text [^>]*>(.*)</text>`)
	pictureMark  = regexp.MustCompile(`<[^>]*>`)
)

// picturedLines returns the lines of a picture that drawTerminal made.
func picturedLines(picture string) (lines []string) {
	for _, m := range picturedText.FindAllStringSubmatch(picture, -1) {
		lines = append(lines, html.UnescapeString(pictureMark.ReplaceAllString(m[1], "")))
	}
	return lines
}
