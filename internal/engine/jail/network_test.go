package jail_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/jail/jailtest"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// The gateway's end of a sandbox's network receives the sandbox's packets, and is the only
// descriptor that keeps the device alive. When it is closed and the sandbox is gone, nothing is
// left.
func TestTapReceivesPackets(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.TUN)
	e := open(false)(t, t.TempDir())
	spec := engine.Spec{ID: "tapped", Image: image(t)}
	var gateway *os.File
	spec.Egress = engine.Egress{Kind: engine.EgressTap, Attach: func(_ context.Context, end *os.File) ([]byte, error) {
		fd, err := unix.FcntlInt(end.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		if err := unix.SetNonblock(fd, true); err != nil {
			return nil, err
		}
		gateway = os.NewFile(uintptr(fd), "gateway")
		return []byte(`{"sandbox_id":"tapped","hostname":"tapped","default_user":"user","control_token":"x","access_token":"y"}`), nil
	}}
	if err := e.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	defer gateway.Close()
	// The sandbox's kernel answers a packet from outside to the sandbox's address.
	ping := []byte{
		0x45, 0, 0, 28, 0, 1, 0, 0, 64, 1, 0, 0, 10, 199, 0, 1, 10, 199, 0, 2, // IPv4, ICMP
		8, 0, 0xf7, 0xff, 0, 0, 0, 0, // echo
	}
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(ping[i])<<8 | uint32(ping[i+1])
	}
	sum = ^(sum&0xffff + sum>>16)
	ping[10], ping[11] = byte(sum>>8), byte(sum)
	if _, err := gateway.Write(ping); err != nil {
		t.Fatal(err)
	}
	if err := gateway.SetReadDeadline(hosttest.Deadline()); err != nil {
		t.Fatal(err)
	}
	reply := make([]byte, 1500)
	n, err := gateway.Read(reply)
	if err != nil || n < 28 || reply[0] != 0x45 || reply[20] != 0 {
		t.Fatalf("the sandbox's kernel does not answer: % x %v", reply[:n], err)
	}
	if err := e.Remove(t.Context(), spec.ID); err != nil {
		t.Fatal(err)
	}
}

// If the network cannot be attached, the sandbox does not exist afterwards, and the error gives the
// reason.
func TestCreateFailsIfAttachFails(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.TUN)
	dir := t.TempDir()
	e := open(false)(t, dir)
	spec := engine.Spec{ID: "refused", Image: image(t)}
	spec.Egress = engine.Egress{Kind: engine.EgressTap, Attach: func(context.Context, *os.File) ([]byte, error) {
		return nil, fault.New(fault.Denied, "no_such_policy", "the gateway refuses")
	}}
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.Patience(time.Minute))
	defer cancel()
	var got *fault.Error
	if err := e.Create(ctx, spec); !errors.As(err, &got) || got.Code != "no_such_policy" {
		t.Errorf("create: %v", err)
	}
	if list, err := e.List(t.Context()); err != nil || len(list) > 0 || len(jailtest.Processes(t, dir)) > 0 {
		t.Errorf("left: %v %v %v", list, jailtest.Processes(t, dir), err)
	}
}
