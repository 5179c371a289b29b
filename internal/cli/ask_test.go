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

// screen is a pseudo terminal: the test types at one end and reads what the other end shows.
type screen struct {
	t           *testing.T
	person, tty *os.File

	mu      sync.Mutex
	changed *sync.Cond
	content bytes.Buffer
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
	s.changed = sync.NewCond(&s.mu)
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := person.Read(buf)
			s.mu.Lock()
			s.content.Write(buf[:n])
			s.changed.Broadcast()
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { tty.Close(); person.Close() })
	return s
}

// wait waits until a text is on the screen, and returns everything on the screen.
func (s *screen) wait(text string) string {
	s.t.Helper()
	wakeUp := time.AfterFunc(hosttest.Patience(hosttest.Hang)+time.Second, func() { s.changed.Broadcast() })
	defer wakeUp.Stop()
	deadline := hosttest.Deadline()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !strings.Contains(s.content.String(), text) {
		if time.Now().After(deadline) {
			s.t.Fatalf("%q is not on the screen: %q", text, s.content.String())
		}
		s.changed.Wait()
	}
	return s.content.String()
}

func (s *screen) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.content.Reset()
}

func (s *screen) typeText(text string) {
	s.t.Helper()
	if _, err := io.WriteString(s.person, text); err != nil {
		s.t.Fatal(err)
	}
}

// promptTest is a screen that shows the approval requests of a server's sandbox.
type promptTest struct {
	*testServer
	*screen
	console *console
}

func newPromptTest(t *testing.T, c func(*screen) *console) *promptTest {
	t.Helper()
	d := &promptTest{testServer: newTestServer(t), screen: newScreen(t)}
	d.console = c(d.screen)
	client, err := crannog.New(crannog.Socket(server.SocketPath(d.dir)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	a := newApp(Env{Stderr: d.tty})
	go func() { ended <- (approvalVerbs{a}).decideAtTerminal(ctx, client, d.sandboxID, d.console) }()
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
func (d *promptTest) result(id string) approval.Approval {
	d.testServer.t.Helper()
	var got approval.Approval
	ctx, cancel := context.WithTimeout(d.testServer.t.Context(), hosttest.Patience(hosttest.Hang))
	defer cancel()
	err := d.d.Approvals.Watch(ctx, approval.Caller{Local: true}, approval.Query{}, 0, func(e approval.Event) error {
		if e.Approval.ID == id && e.Approval.State != approval.Pending {
			got = e.Approval
			return errDecidedElsewhere
		}
		return nil
	})
	if err == nil {
		d.testServer.t.Fatalf("request %s was not decided in time", id)
	}
	return got
}

// promptEnd is the end of the prompt for a request about a.example.com.
const promptEnd = "443): "

func newSharedConsole(s *screen) *console { return newConsole(s.tty, s.tty, true, nil) }

// A program that shares the terminal neither gets the decision nor makes it, and writes nothing
// into the prompt, in both modes of a terminal.
func TestPromptDecidesRequests(t *testing.T) {
	for _, raw := range []bool{false, true} {
		d := newPromptTest(t, func(s *screen) *console {
			if raw {
				if _, err := term.MakeRaw(int(s.tty.Fd())); err != nil {
					t.Fatal(err)
				}
			}
			return newSharedConsole(s)
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
		d.typeText("y\n") // input for the program
		if text := <-got; strings.TrimSpace(text) != "y" {
			t.Errorf("the program read %q", text)
		}
		id := d.ask(d.question("1"))
		text := d.wait(promptEnd)
		if !strings.Contains(text, "a.example.com") || strings.ContainsAny(text, "\u202e") || strings.Contains(text, "\x1b[2J") {
			t.Errorf("prompt: got %q", text)
		}
		wrote := make(chan struct{})
		go func() {
			defer close(wrote)
			if _, err := io.WriteString(out, "\x1b[2JPress y to go on"); err != nil {
				t.Error(err)
			}
		}()
		d.clear()
		d.typeText("maybe\r")
		d.wait("Please type one")
		d.wait(promptEnd)
		d.typeText("yx\x7fes\r")
		if a := d.result(id); a.State != approval.Approved || a.Votes[0].Who != "local" {
			t.Errorf("raw %v: got request %+v, want approved by local", raw, a)
		}
		<-wrote
		d.wait("Press y to go on")
		d.typeText("z\n")
		if text := <-got; strings.TrimSpace(text) != "z" {
			t.Errorf("the program read %q after the question", text)
		}
		// No answer is a denial: Ctrl-C if it arrives as a character, otherwise Ctrl-D.
		d.clear()
		second := d.ask(d.question("2"))
		d.wait(promptEnd)
		d.typeText(map[bool]string{true: "\x03", false: "n\n"}[raw])
		if a := d.result(second); a.State != approval.Denied {
			t.Errorf("got request %+v, want denied", a)
		}
	}
}

// If two people must approve, the prompt shows the first one that another approval is needed, and
// who can give it.
func TestPromptReportsMissingApprovals(t *testing.T) {
	d := newPromptTest(t, newSharedConsole)
	q := d.question("1")
	q.Quorum = 2
	id := d.ask(q)
	d.wait("yes (this once), no: ") // "always" is not offered
	d.typeText("y\r")
	d.wait("1 more needed, by " + approval.SecondPerson)
	if d.state(id) != approval.Pending {
		t.Error("one person was enough")
	}
	if code, _, stderr := d.run("approve", id); code != codeConflict || !strings.Contains(stderr, "already_voted") || !strings.Contains(stderr, "crannog console --name SOMEBODY") {
		t.Errorf("run: got %d, %s", code, stderr)
	}
}

// While a prompt is open, the program's output waits.
func TestOpenPromptDelaysOutput(t *testing.T) {
	d := newPromptTest(t, newSharedConsole)
	_, out, _ := d.console.program(d.tty, d.tty)
	d.ask(d.question("1"))
	d.wait(promptEnd)
	if d.console.hold.TryLock() {
		t.Fatal("the program could write over the question")
	}
	d.typeText("n\n")
	if _, err := io.WriteString(out, "after"); err != nil {
		t.Error(err)
	}
	d.wait("after")
}

// A decision in another process ends the prompt, and the next request is shown.
func TestPromptEndsWhenDecidedElsewhere(t *testing.T) {
	d := newPromptTest(t, newSharedConsole)
	id := d.ask(d.question("1"))
	d.wait(promptEnd)
	if code, _, stderr := d.run("approve", id); code != 0 {
		t.Fatal(stderr)
	}
	d.wait("decided elsewhere")
	d.clear()
	second := d.ask(d.question("2"))
	d.wait(promptEnd)
	d.typeText("n\n")
	if a := d.result(second); a.State != approval.Denied {
		t.Errorf("got request %+v, want denied", a)
	}
}

// Without a terminal, an approval request is denied at once.
func TestRequestsAreDeniedWithoutTerminal(t *testing.T) {
	d := newPromptTest(t, func(*screen) *console { return &console{} })
	if a := d.result(d.ask(d.question("1"))); a.State != approval.Denied || !strings.Contains(a.Reason, "no terminal") {
		t.Errorf("got request %+v, want denied", a)
	}
}
