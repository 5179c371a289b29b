package docker_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// testConfig returns the guest's configuration for a sandbox.
func testConfig(id string) []byte {
	return []byte(`{"sandbox_id":"` + id + `","template_id":"t","hostname":"box","access_token":"access","control_token":"control",` +
		`"default_user":"user","memory_bytes":1,"milli_cpu":1,"disk_bytes":1,"pids":1}`)
}

// run runs a shell command in a sandbox and returns the guest's response.
func run(t testing.TB, e engine.Engine, id, line string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return e.Dial(ctx, id, guestboot.Port)
	}}}
	text := `{"process":{"cmd":"/bin/sh","args":["-c","` + line + `"]}}`
	body := append([]byte{0, 0, 0, 0, byte(len(text))}, text...)
	request, err := http.NewRequestWithContext(hosttest.Context(t), http.MethodPost, "http://guest/process.Process/Start", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/connect+json")
	request.Header.Set("Connect-Protocol-Version", "1")
	request.Header.Set("X-Access-Token", "access")
	request.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("user:")))
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	output, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(output)
}

// send sends a datagram to an address outside of the sandbox.
const send = `echo hello > /dev/udp/93.184.216.34/9`

// Packets of a sandbox arrive at the gateway's end of its device, from the address that the gateway
// expects. A sandbox without a device sends nothing.
func TestTapConnectsSandbox(t *testing.T) {
	d, image := daemon(t)
	hosttest.Need(t, hosttest.TUN)
	dir := t.TempDir()
	e := opener(d, "")(t, dir)
	create := func(id string, egress engine.Egress) error {
		return e.Create(t.Context(), engine.Spec{ID: id, Hostname: "box", Image: image, Egress: egress, Boot: engine.Boot{Config: testConfig(id)}})
	}
	if err := create("alone", engine.Egress{}); err != nil {
		t.Fatal(err)
	}
	defer e.Remove(context.Background(), "alone")
	if output := run(t, e, "alone", "bash -c '"+send+"'; echo code $?"); strings.Contains(output, base64.StdEncoding.EncodeToString([]byte("code 0\n"))) {
		t.Errorf("control: a sandbox without a network sends a datagram: %s", output)
	}
	var gateway *os.File
	egress := engine.Egress{Kind: engine.EgressTap, Attach: func(_ context.Context, end *os.File) ([]byte, error) {
		fd, err := unix.FcntlInt(end.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		if err := unix.SetNonblock(fd, true); err != nil {
			return nil, err
		}
		gateway = os.NewFile(uintptr(fd), "gateway")
		return testConfig("tapped"), nil
	}}
	if err := create("tapped", egress); err != nil {
		t.Fatal(err)
	}
	defer e.Remove(context.Background(), "tapped")
	defer gateway.Close()
	run(t, e, "tapped", "bash -c '"+send+"'")
	if err := gateway.SetReadDeadline(hosttest.Deadline()); err != nil {
		t.Fatal(err)
	}
	for packet := make([]byte, 1<<16); ; {
		n, err := gateway.Read(packet)
		if err != nil {
			t.Fatalf("the datagram does not arrive at the gateway: %v", err)
		}
		if n > 28 && packet[0]>>4 == 4 && net.IP(packet[16:20]).Equal(net.IPv4(93, 184, 216, 34)) {
			if !net.IP(packet[12:16]).Equal(net.IPv4(10, 199, 0, 2)) || !bytes.Contains(packet[:n], []byte("hello")) {
				t.Errorf("the packet is % x, want hello from 10.199.0.2", packet[:n])
			}
			break
		}
	}
	refused := engine.Egress{Kind: engine.EgressTap, Attach: func(context.Context, *os.File) ([]byte, error) {
		return nil, fault.New(fault.Denied, "no_such_policy", "the gateway refuses")
	}}
	if err := create("refused", refused); fault.CodeOf(err) != "no_such_policy" {
		t.Errorf("Create after a refused attachment returned %v, want no_such_policy", err)
	}
	if list, err := e.List(t.Context()); err != nil || len(list) != 2 {
		t.Errorf("List returned %v, %v; want the two sandboxes", list, err)
	}
}
