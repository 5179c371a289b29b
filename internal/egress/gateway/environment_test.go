package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

// The host may get an address while a sandbox runs, so own addresses are checked at each dial.
func TestDialRejectsOwnAddresses(t *testing.T) {
	errDialled := errors.New("dialled")
	w := Environment{
		own:  &ownAddresses{list: []netip.Addr{netip.MustParseAddr("93.184.216.34"), netip.MustParseAddr("2606:2800::1")}, read: time.Now().Add(time.Hour)},
		Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errDialled },
	}
	for address, own := range map[string]bool{
		"93.184.216.34:443":          true,
		"[::ffff:93.184.216.34]:443": true,
		"[2606:2800::1]:443":         true,
		"127.0.0.1:80":               true,
		"93.184.216.35:443":          false,
		"10.1.2.3:443":               false, // a rule may have allowed it
	} {
		_, err := w.dial(t.Context(), "tcp", address)
		if own && fault.KindOf(err) != fault.Denied || !own && !errors.Is(err, errDialled) {
			t.Errorf("dial %s: got %v, want a denial only for own addresses (%v)", address, err, own)
		}
	}
}

func TestOwnAddressesAreReadAgain(t *testing.T) {
	o := &ownAddresses{}
	list, err := o.now()
	if err != nil || len(list) == 0 {
		t.Fatalf("own addresses: got %v, %v, want at least one", list, err)
	}
	o.list = nil
	if list, _ := o.now(); len(list) != 0 {
		t.Error("the addresses are read again before they are stale")
	}
	o.read = time.Now().Add(-2 * freshness)
	if list, err := o.now(); err != nil || len(list) == 0 {
		t.Errorf("stale addresses are not read again: %v, %v", list, err)
	}
}
