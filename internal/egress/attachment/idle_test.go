package attachment_test

import (
	"testing"

	"github.com/crannog/crannog/internal/egress/attachment"
)

// A process serves thousands of sandboxes, most of which are idle.
func TestIdleAttachmentUsesLittleMemory(t *testing.T) {
	const links = 100
	before, threads := memory(), threadCount()
	for range links {
		l, end := openRaw(t, &handler{names: reversed}, attachment.Options{})
		send := frameSender(t, end)
		// Use the attachment first: send a query, a connection that is refused and a stray segment.
		send(frame(17, sandboxAddress, remoteAddress, datagram(7, 53, "query")))
		send(frame(6, sandboxAddress, remoteAddress, segment(4000, 80, syn, 1, 0)))
		send(frame(6, sandboxAddress, remoteAddress, segment(4001, 80, ack, 1, 1)))
		waitReceived(t, l, 3)
	}
	if each := (memory() - before) / links; each > 200<<10 {
		t.Errorf("an idle attachment uses %d bytes, want at most %d", each, 200<<10)
	} else {
		t.Logf("an idle attachment uses %d bytes", each)
	}
	if more := threadCount() - threads; more > links/5 {
		t.Errorf("%d idle attachments use %d threads", links, more)
	}
}
