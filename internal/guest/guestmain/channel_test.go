package guestmain

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/guest/relay"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// channelPair returns the engine's end of a channel, and the two descriptors for the guest.
func channelPair(t *testing.T) (*relay.Channel, []*os.File) {
	t.Helper()
	in, toGuest, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromGuest, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := relay.NewChannel(fromGuest, toGuest)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, []*os.File{in, out}
}

// The first stream of the channel leads to the guest. TestProgramsGetHostNameAndNoGuestDescriptors
// checks that no program inside has its descriptor.
func TestChannelReachesGuest(t *testing.T) {
	r := boot(t, config())
	conn, err := r.first.Dial(t.Context(), guestboot.Port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(hosttest.Deadline()); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://guest/health", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusNoContent {
		t.Errorf("health: got %s, want 204", res.Status)
	}
}

// A stream to a port without a listener is rejected.
func TestChannelRejectsClosedPort(t *testing.T) {
	r := boot(t, config())
	if _, err := r.first.Dial(t.Context(), 9); !errors.Is(err, relay.ErrRefused) {
		t.Errorf("Dial of a port without a listener: got %v, want ErrRefused", err)
	}
}

// Any error that ends the guest is reported on its output, because the engine may be waiting for
// the sandbox to continue.
func TestFatalErrorIsReported(t *testing.T) {
	r := boot(t, config())
	pipe, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", r.cmd.Process.Pid, guestboot.ChannelFD), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	if _, err := pipe.Write([]byte{0xff, 0xff}); err != nil { // an invalid frame
		t.Fatal(err)
	}
	if output := r.nextLine(); !strings.HasPrefix(output, "crannog-guest: ") {
		t.Errorf("the guest printed %q", output)
	}
	if output := r.nextLine(); output != "the end" {
		t.Errorf("the guest then printed %q", output)
	}
	if err := r.cmd.Wait(); err == nil || r.cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("the guest ended with %v, want exit status 1", err)
	}
}
