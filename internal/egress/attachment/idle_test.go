package attachment_test

import (
	"testing"

	"github.com/crannog/crannog/internal/egress/attachment"
)

// A process serves thousands of sandboxes, most of which do nothing.
func TestAnIdleLinkCostsLittle(t *testing.T) {
	const links = 100
	before, threads := memory(), threadCount()
	for range links {
		l, end := openRaw(t, &handler{names: reversed}, attachment.Options{})
		send := sending(t, end)
		// Idle after use, not only before it: a query, a refused connection and a stray segment.
		send(frame(17, boxAddress, elsewhere, datagram(7, 53, "query")))
		send(frame(6, boxAddress, elsewhere, segment(4000, 80, syn, 1, 0)))
		send(frame(6, boxAddress, elsewhere, segment(4001, 80, ack, 1, 1)))
		arrived(t, l, 3)
	}
	if each := (memory() - before) / links; each > 200<<10 {
		t.Errorf("%d bytes for an idle link", each)
	} else {
		t.Logf("%d bytes for an idle link", each)
	}
	if more := threadCount() - threads; more > links/5 {
		t.Errorf("%d threads for %d idle links", more, links)
	}
}
