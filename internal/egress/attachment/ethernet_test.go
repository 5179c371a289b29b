package attachment_test

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress/attachment"
	"github.com/crannog/crannog/internal/egress/attachment/attachmenttest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

var ethernetForms = []attachmenttest.Form{
	attachmenttest.TAP, attachmenttest.Datagrams, attachmenttest.Messages, attachmenttest.Stream,
}

// The host's own kernel resolves the gateway's address and checks what it receives.
func TestEthernetCarriesKernelTraffic(t *testing.T) {
	hosttest.Need(t, hosttest.Program("curl"))
	file := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(file, []byte(strings.Repeat("x", tapBody)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, rootless := range []bool{false, true} {
		for _, form := range ethernetForms {
			for _, mtu := range []int{576, 1500, 0} {
				t.Run(fmt.Sprintf("rootless=%v/%s/mtu=%d", rootless, form, mtu), func(t *testing.T) {
					link, k := attachmenttest.StartKernel(t, form, rootless, mtu, curlCommand(file)...)
					l, err := attachment.Open(form.Kind(), link, webHandler(t), attachment.Options{})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { l.Close() })
					k.Go()
					wantCurlResults(t, k, l)
				})
			}
		}
	}
}

// curlCommand returns a program that downloads a file, uploads one and connects to a refused port.
func curlCommand(file string) []string {
	return []string{
		"sh", "-c", "curl -sS -m 60 -o /dev/null -w '%{size_download}\\n' http://1.1.1.1/ && curl -sS -m 60 --data-binary @" +
			file + " http://8.8.8.8/; echo; curl -sS -m 60 http://1.1.1.1:81/",
	}
}

func wantCurlResults(t *testing.T, k *attachmenttest.Kernel, l attachment.Attachment) {
	t.Helper()
	want := fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Repeat("x", tapBody))))
	got, err := k.Wait()
	lines := strings.Split(strings.TrimSpace(got), "\n")
	if len(lines) != 3 || lines[0] != fmt.Sprint(tapBody) || lines[1] != want {
		t.Fatalf("curl: got %v, output\n%s\ncounts of the attachment: %+v", err, got, l.Counts())
	}
	// 7 is curl's "could not connect": the refusal arrived as a reset.
	if err == nil || err.Error() != "exit status 7" {
		t.Errorf("curl to the refused port: got %v, want exit status 7\n%s", err, got)
	}
}

// QEMU itself joins the device to the socket, without a guest. If a socket accepts only a part of a
// frame, QEMU's hub forgets the frame, and QEMU 7.2 then exits: so the socket's buffer is larger
// than all data in flight.
func TestEthernetWithQEMU(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Program("curl"), hosttest.Program("qemu-system-x86_64"))
	file := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(file, []byte(strings.Repeat("x", tapBody)), 0o644); err != nil {
		t.Fatal(err)
	}
	for form, netdev := range map[attachmenttest.Form]string{
		attachmenttest.Datagrams: "dgram,id=socket,local.type=fd,local.str=4",
		attachmenttest.Stream:    "stream,id=socket,server=off,addr.type=fd,addr.str=4",
	} {
		t.Run(string(form), func(t *testing.T) {
			device, k := attachmenttest.StartKernel(t, attachmenttest.TAP, false, 0, curlCommand(file)...)
			peer, link := attachmenttest.Pair(t, form)
			if err := unix.SetsockoptInt(int(peer.Fd()), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 8<<20); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), "qemu-system-x86_64", "-machine", "none", "-nodefaults", "-display", "none",
				"-netdev", "tap,id=tap,fd=3", "-netdev", netdev,
				"-netdev", "hubport,id=one,hubid=0,netdev=tap", "-netdev", "hubport,id=two,hubid=0,netdev=socket")
			cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = []*os.File{device, peer}, os.Stderr, os.Stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			device.Close()
			peer.Close()
			l, err := attachment.Open(attachment.Ethernet, link, webHandler(t), attachment.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			k.Go()
			wantCurlResults(t, k, l)
		})
	}
}

// openEthernet creates an attachment with the test as its peer.
func openEthernet(t *testing.T, form attachmenttest.Form, h *handler) (attachment.Attachment, net.Conn) {
	t.Helper()
	peer, link := attachmenttest.Pair(t, form)
	l, err := attachment.Open(attachment.Ethernet, link, h, attachment.Options{})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.FileConn(peer)
	if err != nil {
		t.Fatal(err)
	}
	peer.Close()
	t.Cleanup(func() { conn.Close(); l.Close() })
	_ = conn.SetDeadline(hosttest.Deadline())
	return l, conn
}

// Addresses of a hand-made frame.
var (
	peerMAC    = []byte{0x52, 0x54, 0, 0x12, 0x34, 0x56}
	gatewayMAC = []byte{0x02, 0xc7, 10, 199, 0, 1}
	allMAC     = []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	noMAC      = make([]byte, 6)
	peerIP     = []byte{10, 199, 0, 2}
	gatewayIP  = []byte{10, 199, 0, 1}
)

func etherFrame(to, from []byte, etherType uint16, body ...[]byte) []byte {
	return append(binary.BigEndian.AppendUint16(slices.Concat(to, from), etherType), slices.Concat(body...)...)
}

func arp(operation byte, senderMAC, sender, target []byte) []byte {
	return slices.Concat([]byte{0, 1, 8, 0, 6, 4, 0, operation}, senderMAC, sender, noMAC, target)
}

// udpTo returns a UDP packet from the sandbox to a port and an address, without a UDP checksum.
func udpTo(port byte, address ...byte) []byte {
	ip := slices.Concat([]byte{0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0}, peerIP, address, []byte{0, 9, 0, port, 0, 9, 0, 0, 'q'})
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum&0xffff+sum>>16))
	return ip
}

var gatewayARPRequest = etherFrame(allMAC, peerMAC, 0x0806, arp(1, peerMAC, peerIP, gatewayIP), make([]byte, 18))

// Only a request of the sandbox for the gateway's address gets a reply.
func TestARPAnswersOnlyForGateway(t *testing.T) {
	for _, form := range ethernetForms[1:] {
		t.Run(string(form), func(t *testing.T) {
			h := &handler{}
			l, conn := openEthernet(t, form, h)
			other := []byte{0x52, 0x54, 0, 0x12, 0x34, 0x57}
			dropped := map[string][]byte{
				"request for another address":     etherFrame(allMAC, peerMAC, 0x0806, arp(1, peerMAC, peerIP, []byte{10, 199, 0, 3})),
				"request for its own address":     etherFrame(allMAC, peerMAC, 0x0806, arp(1, peerMAC, peerIP, peerIP)),
				"reply":                           etherFrame(gatewayMAC, peerMAC, 0x0806, arp(2, peerMAC, peerIP, gatewayIP)),
				"reply as the gateway":            etherFrame(gatewayMAC, peerMAC, 0x0806, arp(2, peerMAC, gatewayIP, peerIP)),
				"request as the gateway":          etherFrame(allMAC, peerMAC, 0x0806, arp(1, peerMAC, gatewayIP, gatewayIP)),
				"request as another address":      etherFrame(allMAC, peerMAC, 0x0806, arp(1, peerMAC, []byte{10, 199, 0, 3}, gatewayIP)),
				"sender differs from the frame's": etherFrame(allMAC, peerMAC, 0x0806, arp(1, other, peerIP, gatewayIP)),
				"from the gateway's MAC":          etherFrame(allMAC, gatewayMAC, 0x0806, arp(1, gatewayMAC, peerIP, gatewayIP)),
				"from a group address":            etherFrame(allMAC, allMAC, 0x0806, arp(1, allMAC, peerIP, gatewayIP)),
				"from the zero address":           etherFrame(allMAC, noMAC, 0x0806, arp(1, noMAC, peerIP, gatewayIP)),
				"to another interface":            etherFrame(other, peerMAC, 0x0806, arp(1, peerMAC, peerIP, gatewayIP)),
				"cut off":                         gatewayARPRequest[:40],
				"another hardware type":           etherFrame(allMAC, peerMAC, 0x0806, []byte{0, 6}, arp(1, peerMAC, peerIP, gatewayIP)[2:]),
				"RARP":                            etherFrame(allMAC, peerMAC, 0x8035, arp(3, peerMAC, peerIP, gatewayIP)),
			}
			for _, frame := range dropped {
				send(t, conn, form, frame)
			}
			// The reply to the last message arrives first, so the others got no reply.
			send(t, conn, form, gatewayARPRequest)
			reply := receive(t, conn, form)
			want := etherFrame(peerMAC, gatewayMAC, 0x0806, []byte{0, 1, 8, 0, 6, 4, 0, 2}, gatewayMAC, gatewayIP, peerMAC, peerIP)
			if !slices.Equal(reply, want) {
				t.Errorf("ARP reply\n% x, want\n% x", reply, want)
			}
			if c := l.Counts(); c.Dropped != uint64(len(dropped)) || c.Received != uint64(len(dropped))+1 {
				t.Errorf("counts are %+v, want %d dropped", c, len(dropped))
			}
			// A sandbox without an address yet probes whether the gateway's is free.
			send(t, conn, form, etherFrame(allMAC, peerMAC, 0x0806, arp(1, peerMAC, []byte{0, 0, 0, 0}, gatewayIP)))
			if reply := receive(t, conn, form); len(reply) != 42 || reply[21] != 2 {
				t.Errorf("the reply to a probe is % x, want 42 bytes with operation 2", reply)
			}
		})
	}
}

// Frames that no sandbox needs are dropped, counted, and reported by name.
func TestEthernetDropsOtherFrames(t *testing.T) {
	query := udpTo(53, 8, 8, 8, 8)
	damaged := slices.Clone(query)
	damaged[8]++
	spoofed := slices.Clone(query)
	spoofed[15] = 9
	for name, c := range map[string]struct {
		frame []byte
		want  string
	}{
		"empty frame":                  {nil, "malformed"},
		"incomplete header":            {etherFrame(gatewayMAC, peerMAC, 0x0800)[:13], "malformed"},
		"no packet":                    {etherFrame(gatewayMAC, peerMAC, 0x0800), "malformed"},
		"damaged packet":               {etherFrame(gatewayMAC, peerMAC, 0x0800, damaged), "malformed"},
		"another sandbox's address":    {etherFrame(gatewayMAC, peerMAC, 0x0800, spoofed), "spoofed"},
		"VLAN":                         {etherFrame(gatewayMAC, peerMAC, 0x8100, []byte{0, 7, 8, 0}, query), "vlan"},
		"provider VLAN":                {etherFrame(gatewayMAC, peerMAC, 0x88a8, []byte{0, 7, 0x81, 0}, query), "vlan"},
		"IPv6":                         {etherFrame(gatewayMAC, peerMAC, 0x86dd, []byte{0x60}, make([]byte, 39)), "ipv6"},
		"IPv4 labelled as IPv6":        {etherFrame(gatewayMAC, peerMAC, 0x86dd, query), "malformed"},
		"IPv6 labelled as IPv4":        {etherFrame(gatewayMAC, peerMAC, 0x0800, []byte{0x60}, make([]byte, 39)), "malformed"},
		"spanning tree":                {etherFrame([]byte{1, 0x80, 0xc2, 0, 0, 0}, peerMAC, 38, make([]byte, 38)), "ethernet"},
		"LLDP":                         {etherFrame([]byte{1, 0x80, 0xc2, 0, 0, 0xe}, peerMAC, 0x88cc, make([]byte, 46)), "ethernet"},
		"DHCP":                         {etherFrame(allMAC, peerMAC, 0x0800, udpTo(67, 255, 255, 255, 255)), "udp"},
		"broadcast query":              {etherFrame(allMAC, peerMAC, 0x0800, query), "udp"},
		"query to another interface":   {etherFrame(peerMAC, peerMAC, 0x0800, query), "udp"},
		"query from the gateway's MAC": {etherFrame(gatewayMAC, gatewayMAC, 0x0800, query), "spoofed"},
		"query from a group address":   {etherFrame(gatewayMAC, []byte{1, 0, 0, 0, 0, 1}, 0x0800, query), "spoofed"},
		"larger than the MTU":          {etherFrame(gatewayMAC, peerMAC, 0x0800, []byte{0x45}, make([]byte, 65100)), "malformed"},
		"loopback protocol":            {etherFrame(gatewayMAC, peerMAC, 0x9000, make([]byte, 46)), "ethernet"},
		"MPLS":                         {etherFrame(gatewayMAC, peerMAC, 0x8847, []byte{0, 0, 1, 64}, query), "ethernet"},
	} {
		for _, form := range ethernetForms[1:] {
			if name == "empty frame" && form == attachmenttest.Messages {
				continue // an empty message is the end of the connection
			}
			t.Run(name+"/"+string(form), func(t *testing.T) {
				h := &handler{names: func([]byte, int) []byte { return []byte("name") }}
				l, conn := openEthernet(t, form, h)
				send(t, conn, form, c.frame)
				hosttest.Eventually(t, "the frame is dropped", func() bool { return l.Counts().Dropped == 1 })
				if got := h.drops(); len(got) != 1 || !strings.HasPrefix(got[0], c.want+" ") {
					t.Errorf("reported %q, want %q", got, c.want)
				}
				// Control: the attachment still works.
				send(t, conn, form, etherFrame(gatewayMAC, peerMAC, 0x0800, query))
				reply := receive(t, conn, form)
				if len(reply) != 14+28+4 || !slices.Equal(reply[:12], slices.Concat(peerMAC, gatewayMAC)) || string(reply[42:]) != "name" {
					t.Errorf("the answer to a query is % x", reply)
				}
			})
		}
	}
}

func send(t *testing.T, conn net.Conn, form attachmenttest.Form, frame []byte) {
	t.Helper()
	if form == attachmenttest.Stream {
		frame = append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
	}
	if _, err := conn.Write(frame); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, conn net.Conn, form attachmenttest.Form) []byte {
	t.Helper()
	frame, err := attachmenttest.ReadFrame(conn, form)
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

// A stream that announces a frame above the maximum has lost its frame boundaries.
func TestStreamEndsAtOversizedFrame(t *testing.T) {
	for _, length := range []uint32{1 << 31, 4096 + 65536 + 1} {
		l, conn := openEthernet(t, attachmenttest.Stream, &handler{})
		if _, err := conn.Write(binary.BigEndian.AppendUint32(nil, length)); err != nil {
			t.Fatal(err)
		}
		select {
		case <-l.Done():
		case <-hosttest.Late():
			t.Errorf("the attachment still waits for a frame of %d bytes", length)
		}
	}
}

// A peer that closes its end ends the attachment, if the kernel reports that.
func TestEthernetEndsWithPeer(t *testing.T) {
	for _, form := range []attachmenttest.Form{attachmenttest.Messages, attachmenttest.Stream} {
		l, conn := openEthernet(t, form, &handler{})
		select {
		case <-l.Done():
			t.Fatal("control: the attachment had ended before its peer")
		default:
		}
		conn.Close()
		select {
		case <-l.Done():
		case <-hosttest.Late():
			t.Errorf("%s: the attachment outlives its peer", form)
		}
	}
}

func TestEthernetRejectsOtherDescriptors(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	port, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	listener, _ := attachmenttest.ListenProxy(t)
	for name, f := range map[string]*os.File{"a file": null, "a TCP socket of the host": os.NewFile(uintptr(port), "port"), "a listener": listener} {
		if _, err := attachment.Open(attachment.Ethernet, f, &handler{}, attachment.Options{}); err == nil {
			t.Errorf("%s was accepted as a frame socket", name)
		}
	}
}

// Ethernet attachments leave no goroutines and descriptors, whichever side ends them first, even if
// a stream ends within a frame.
func TestEthernetLeavesNoResources(t *testing.T) {
	cycle := func(form attachmenttest.Form, peerFirst bool) {
		peer, link := attachmenttest.Pair(t, form)
		l, err := attachment.Open(attachment.Ethernet, link, &handler{}, attachment.Options{})
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.FileConn(peer)
		if err != nil {
			t.Fatal(err)
		}
		peer.Close()
		send(t, conn, form, gatewayARPRequest)
		receive(t, conn, form)
		if form == attachmenttest.Stream {
			if _, err := conn.Write([]byte{0, 0, 0, 60, 1, 2, 3}); err != nil {
				t.Fatal(err)
			}
		}
		if peerFirst {
			conn.Close()
		}
		l.Close()
		conn.Close()
	}
	for _, form := range ethernetForms[1:] {
		for _, peerFirst := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/peer first=%v", form, peerFirst), func(t *testing.T) {
				cycle(form, peerFirst)
				goroutines, descriptors := countResources(t, 0, 0)
				for range 10 {
					cycle(form, peerFirst)
				}
				if g, d := countResources(t, goroutines, descriptors); g > goroutines || d > descriptors {
					t.Errorf("goroutines %d, before %d; descriptors %d, before %d", g, goroutines, d, descriptors)
				}
			})
		}
	}
	// Control: an open attachment is counted.
	g, d := countResources(t, 0, 0)
	openEthernet(t, attachmenttest.Datagrams, &handler{})
	if g2, d2 := countResources(t, 0, 0); g2 <= g || d2 <= d {
		t.Errorf("an open attachment is not counted: goroutines %d then %d, descriptors %d then %d", g, g2, d, d2)
	}
}
