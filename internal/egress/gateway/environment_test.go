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

// The host may get an address while a sandbox runs; own addresses are checked again at each dial.
func TestOwnAddressesAreNotDialled(t *testing.T) {
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
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestOwnAddressesAreFresh(t *testing.T) {
	o := &ownAddresses{}
	list, err := o.now()
	if err != nil || len(list) == 0 {
		t.Fatalf("addresses %v, %v", list, err)
	}
	o.list = nil
	if list, _ := o.now(); len(list) != 0 {
		t.Error("they are read each time")
	}
	o.read = time.Now().Add(-2 * freshness)
	if list, err := o.now(); err != nil || len(list) == 0 {
		t.Errorf("they are not read again: %v, %v", list, err)
	}
}
