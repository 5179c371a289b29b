package microvm_test

import (
	"context"
	"encoding/binary"
	"io"
	"testing"

	"github.com/crannog/crannog/internal/egress/attachment"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/ids"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// A machine with a network sends what its programs send to the gateway's end, as frames in a
// stream, and has an address of the sandbox's network.
func TestNetworkExchangesFrames(t *testing.T) {
	e := open(false)(t, t.TempDir())
	peer, gateway, err := attachment.Pair(attachment.Ethernet)
	if err != nil {
		t.Fatal(err)
	}
	defer gateway.Close()
	id := ids.New("i") // control groups of all engines on this host have one parent
	err = e.Create(t.Context(), engine.Spec{
		ID: id, Hostname: "box", Image: image(t).OCI(), Limits: engine.Limits{MemoryBytes: 256 << 20}, Egress: engine.Egress{Kind: engine.EgressEthernet, End: peer},
		Boot: engine.Boot{Config: []byte(`{"sandbox_id":"` + id + `","access_token":"a","control_token":"c","default_user":"user"}`)},
	})
	peer.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Remove(context.WithoutCancel(t.Context()), id); err != nil {
			t.Error(err)
		}
	}()
	// The sandbox's kernel answers an ARP request for its address from outside.
	request := []byte{
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0xc7, 0x0a, 0xc7, 0, 1, 8, 6, // ARP, to all
		0, 1, 8, 0, 6, 4, 0, 1, 2, 0xc7, 0x0a, 0xc7, 0, 1, 10, 199, 0, 1, 0, 0, 0, 0, 0, 0, 10, 199, 0, 2,
	}
	if _, err := gateway.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(request))), request...)); err != nil {
		t.Fatal(err)
	}
	if err := gateway.SetReadDeadline(hosttest.Deadline()); err != nil {
		t.Fatal(err)
	}
	for {
		var size [4]byte
		if _, err := io.ReadFull(gateway, size[:]); err != nil {
			t.Fatalf("the machine does not answer: %v", err)
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(gateway, frame); err != nil {
			t.Fatal(err)
		}
		if len(frame) >= len(request) && frame[12] == 8 && frame[13] == 6 && frame[21] == 2 && string(frame[28:32]) == "\x0a\xc7\x00\x02" {
			return
		}
	}
}
