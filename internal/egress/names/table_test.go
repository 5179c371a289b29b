package names_test

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/names"
	"github.com/crannog/crannog/internal/fault"
)

func TestTableAssignsAddresses(t *testing.T) {
	table := names.NewTable()
	seen := map[netip.Addr]bool{}
	for i := range names.MaxNames {
		name := fmt.Sprintf("h%d.example.com", i)
		a, err := table.Address(name)
		if err != nil || seen[a] || !egress.Synthetic.Contains(a) {
			t.Fatalf("Address(%s) = %v, %v, want a new synthetic address", name, a, err)
		}
		if last := a.As4()[3]; last == 0 || last == 255 {
			t.Fatalf("Address(%s) = %v, which some programs treat as a network or broadcast address", name, a)
		}
		seen[a] = true
		if got, ok := table.Name(a); !ok || got != name {
			t.Fatalf("Name(%v) = %q, want %q", a, got, name)
		}
	}
	if a, err := table.Address("one.more"); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("Address in a full table = %v, %v, want Exhausted", a, err)
	}
	first, _ := table.Address("h0.example.com")
	again, err := table.Address("H0.Example.com.")
	if again != first || err != nil {
		t.Errorf("two spellings of a name have the addresses %v and %v: %v", first, again, err)
	}
}

func TestTableRejectsOtherAddresses(t *testing.T) {
	table := names.NewTable()
	a, err := table.Address("example.com")
	if err != nil {
		t.Fatal(err)
	}
	b := a.As4()
	for _, other := range []netip.Addr{
		{}, a.Next(), a.Prev(), netip.AddrFrom4([4]byte{198, 19, b[2], b[3]}), netip.AddrFrom4([4]byte{198, 18, b[2], 255}),
		netip.MustParseAddr("10.199.0.1"), netip.MustParseAddr("::1"),
	} {
		if name, ok := table.Name(other); ok {
			t.Errorf("Name(%v) = %q, want none", other, name)
		}
	}
	if _, err := table.Address("127.0.0.1"); err == nil {
		t.Error("Address of an IP address returned no error")
	}
}

func TestTableIsSafeForConcurrentUse(t *testing.T) {
	table := names.NewTable()
	var wg sync.WaitGroup
	got := make([]netip.Addr, 32)
	for i := range got {
		wg.Go(func() { got[i], _ = table.Address("example.com") })
	}
	wg.Wait()
	for _, a := range got {
		if a != got[0] || !a.IsValid() {
			t.Fatalf("concurrent calls assigned %v and %v to one name", a, got[0])
		}
	}
}
