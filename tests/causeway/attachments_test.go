package causeway_test

import (
	"testing"

	"github.com/crannog/crannog/internal/egress/attachment/attachmenttest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// kernelForms are the kinds of attachments with which TestAttachmentKinds runs without an engine.
// Under their own names the tests run in gVisor sandboxes, over packets.
var kernelForms = []attachmenttest.Form{
	attachmenttest.TUN, attachmenttest.TAP, attachmenttest.Datagrams, attachmenttest.Stream, proxyForm,
}

// noInterface is why a test does not apply to a sandbox that has only a proxy socket.
const noInterface = "a sandbox without an interface has no packets and no connections but the proxy's"

// kernelTests are the tests about the gateway and not about the engine around it. Each has its own
// control: an honest request that succeeds.
var kernelTests = []struct {
	name string
	run  func(*testing.T, *environment)
	// excluded is why the test does not apply to proxyForm, or empty.
	excluded string
}{
	{"N1HostNotListed", n1HostNotListed, noInterface},
	{"N3DNSTunnelling", n3DNSTunnelling, ""},
	{"N5QUIC", n5QUIC, noInterface},
	{"N6ServerNameIsNotTheTarget", n6ServerNameIsNotTheTarget, "openssl connects to addresses of names, and proxyForm has none"},
	{"N7DomainFronting", n7DomainFronting, ""},
	{"N8CredentialToWrongPeer", n8CredentialToWrongPeer, ""},
	{"N10NamesOfForbiddenAddresses", n10NamesOfForbiddenAddresses, ""},
	{"N11Rebinding", n11Rebinding, ""},
	{"N13PathTricks", n13PathTricks, ""},
	{"N14WebSocketConfusion", n14WebSocketConfusion, ""},
	{"N15Smuggling", n15Smuggling, ""},
	{"N16HostParsers", n16HostParsers, ""},
	{"N17OtherProtocols", n17OtherProtocols, ""},
	{"N18IPv6", n18IPv6, noInterface},
	{"N24HTTP2", n24HTTP2, ""},
}

// Tests outside the table are about more than the gateway. They run only in sandboxes, since no
// engine has another kind yet:
//
//   - N2, N9, N12, N19, N20, N21, N22, N23: what root inside may do to the interface and
//     other devices, the server's part in changes and ends, and two sandboxes.
//   - S, A and the others: the store of secrets, approvals, the audit log, copies.
func TestAttachmentKinds(t *testing.T) {
	need(t, openssl, hosttest.Program("nsenter"), hosttest.Program("unshare"), hosttest.Program("ip"))
	t.Parallel()
	for _, form := range kernelForms {
		t.Run(string(form), func(t *testing.T) {
			t.Parallel() // each kind has its own gateway and mostly waits
			a := kernelEnvironment(t, form)
			ran := 0
			for _, row := range kernelTests {
				if form == proxyForm && row.excluded != "" {
					continue
				}
				ran++
				t.Run(row.name, func(t *testing.T) { row.run(t, a) })
			}
			if want := map[bool]int{true: 11, false: 15}[form == proxyForm]; ran < want {
				t.Errorf("%d tests ran, want at least %d", ran, want)
			}
		})
	}
}
