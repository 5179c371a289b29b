package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/egress/approval"
	"github.com/crannog/crannog/internal/server"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// screen is a terminal with a person at it.
type screen struct {
	t           *testing.T
	person, tty *os.File

	mu   sync.Mutex
	more *sync.Cond
	seen bytes.Buffer
}

func newScreen(t *testing.T) *screen {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetUint32(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, person: person, tty: tty}
	s.more = sync.NewCond(&s.mu)
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := person.Read(buf)
			s.mu.Lock()
			s.seen.Write(buf[:n])
			s.more.Broadcast()
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { tty.Close(); person.Close() })
	return s
}

// wait waits until a text is on the screen and returns the whole screen.
func (s *screen) wait(text string) string {
	s.t.Helper()
	late := time.AfterFunc(hosttest.Patience(hosttest.Hang)+time.Second, func() { s.more.Broadcast() })
	defer late.Stop()
	deadline := hosttest.Deadline()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !strings.Contains(s.seen.String(), text) {
		if time.Now().After(deadline) {
			s.t.Fatalf("%q is not on the screen: %q", text, s.seen.String())
		}
		s.more.Wait()
	}
	return s.seen.String()
}

func (s *screen) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.Reset()
}

func (s *screen) typed(text string) {
	s.t.Helper()
	if _, err := io.WriteString(s.person, text); err != nil {
		s.t.Fatal(err)
	}
}

// desktop is a person at a screen, with a sandbox that makes requests.
type desktop struct {
	*served
	*screen
	console *console
}

func newDesktop(t *testing.T, c func(*screen) *console) *desktop {
	t.Helper()
	d := &desktop{served: newServed(t), screen: newScreen(t)}
	d.console = c(d.screen)
	client, err := crannog.New(crannog.Socket(server.SocketPath(d.dir)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	a := newApp(Env{Stderr: d.tty})
	go func() { ended <- (approvalVerbs{a}).decideAtTerminal(ctx, client, d.box, d.console) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// result waits for the result of a request, without repeating the request.
func (d *desktop) result(id string) approval.Approval {
	d.served.t.Helper()
	var got approval.Approval
	ctx, cancel := context.WithTimeout(d.served.t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	err := d.d.Approvals.Watch(ctx, approval.Caller{Local: true}, approval.Query{}, 0, func(e approval.Event) error {
		if e.Approval.ID == id && e.Approval.State != approval.Pending {
			got = e.Approval
			return errDecidedElsewhere
		}
		return nil
	})
	if err == nil {
		d.served.t.Fatalf("nothing came of %s", id)
	}
	return got
}

// promptEnd is the end of the prompt for a request about a.example.com.
const promptEnd = "443): "

func shared(s *screen) *console { return newConsole(s.tty, s.tty, true, nil) }

// A program that shares the terminal neither gets the decision nor makes it, and writes nothing
// over the prompt; in both modes of a terminal.
func TestTerminalAnswers(t *testing.T) {
	for _, raw := range []bool{false, true} {
		d := newDesktop(t, func(s *screen) *console {
			if raw {
				if _, err := term.MakeRaw(int(s.tty.Fd())); err != nil {
					t.Fatal(err)
				}
			}
			return shared(s)
		})
		in, out, _ := d.console.program(d.tty, d.tty)
		got := make(chan string, 10)
		go func() {
			buf := make([]byte, 100)
			for {
				n, err := in.Read(buf)
				if err != nil {
					return
				}
				got <- string(buf[:n])
			}
		}()
		d.typed("y\n") // input for the program
		if text := <-got; strings.TrimSpace(text) != "y" {
			t.Errorf("the program read %q", text)
		}
		id := d.ask(d.question("1"))
		text := d.wait(promptEnd)
		if !strings.Contains(text, "a.example.com") || strings.ContainsAny(text, "\u202e") || strings.Contains(text, "\x1b[2J") {
			t.Errorf("%q", text)
		}
		wrote := make(chan struct{})
		go func() {
			defer close(wrote)
			if _, err := io.WriteString(out, "\x1b[2JPress y to go on"); err != nil {
				t.Error(err)
			}
		}()
		d.clear()
		d.typed("maybe\r")
		d.wait("Please type one")
		d.wait(promptEnd)
		d.typed("yx\x7fes\r")
		if a := d.result(id); a.State != approval.Approved || a.Votes[0].Who != "local" {
			t.Errorf("raw %v: %+v", raw, a)
		}
		<-wrote
		d.wait("Press y to go on")
		d.typed("z\n")
		if text := <-got; strings.TrimSpace(text) != "z" {
			t.Errorf("the program read %q after the question", text)
		}
		// No answer is a denial: Ctrl-C if it arrives as a character, otherwise Ctrl-D.
		d.clear()
		second := d.ask(d.question("2"))
		d.wait(promptEnd)
		d.typed(map[bool]string{true: "\x03", false: "n\n"}[raw])
		if a := d.result(second); a.State != approval.Denied {
			t.Errorf("%+v", a)
		}
	}
}

// If two people must approve, the first one is told that one more is needed, and how.
func TestOneOfTwoIsToldOfTheOther(t *testing.T) {
	d := newDesktop(t, shared)
	q := d.question("1")
	q.Quorum = 2
	id := d.ask(q)
	d.wait("yes (this once), no: ") // "always" is not offered
	d.typed("y\r")
	d.wait("1 more needed, by " + approval.SecondPerson)
	if d.state(id) != approval.Pending {
		t.Error("one person was enough")
	}
	if code, _, stderr := d.run("approve", id); code != codeConflict || !strings.Contains(stderr, "already_voted") || !strings.Contains(stderr, "crannog console --name SOMEBODY") {
		t.Errorf("%d %s", code, stderr)
	}
}

// While a prompt is open, the program's output waits.
func TestQuestionHoldsOutput(t *testing.T) {
	d := newDesktop(t, shared)
	_, out, _ := d.console.program(d.tty, d.tty)
	d.ask(d.question("1"))
	d.wait(promptEnd)
	if d.console.hold.TryLock() {
		t.Fatal("the program could write over the question")
	}
	d.typed("n\n")
	if _, err := io.WriteString(out, "after"); err != nil {
		t.Error(err)
	}
	d.wait("after")
}

func TestAnsweredElsewhere(t *testing.T) {
	d := newDesktop(t, shared)
	id := d.ask(d.question("1"))
	d.wait(promptEnd)
	if code, _, stderr := d.run("approve", id); code != 0 {
		t.Fatal(stderr)
	}
	d.wait("decided elsewhere")
	d.clear()
	second := d.ask(d.question("2"))
	d.wait(promptEnd)
	d.typed("n\n")
	if a := d.result(second); a.State != approval.Denied {
		t.Errorf("%+v", a)
	}
}

// Without a terminal, an approval request is denied at once.
func TestNoTerminalDenies(t *testing.T) {
	d := newDesktop(t, func(*screen) *console { return &console{} })
	if a := d.result(d.ask(d.question("1"))); a.State != approval.Denied || !strings.Contains(a.Reason, "no terminal") {
		t.Errorf("%+v", a)
	}
}
