package names

import (
	"net/netip"
	"sync"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/fault"
)

// MaxNames is the maximum number of names of one sandbox that have an address. A sandbox that uses
// more, for example below a wildcard, gets no further ones, so that its cost is limited.
const MaxNames = 4096

// Table assigns each name of one sandbox its own address in egress.Synthetic, so that the address
// of a connection identifies the name. An address is never assigned to a second name. It is safe
// for concurrent use.
type Table struct {
	mu    sync.RWMutex
	names []string
	index map[string]int
}

// NewTable returns an empty table.
func NewTable() *Table { return &Table{index: map[string]int{}} }

// Address returns the name's address, which is the same each time.
func (t *Table) Address(name string) (netip.Addr, error) {
	name, err := Canonical(name)
	if err != nil {
		return netip.Addr{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	i, known := t.index[name]
	if !known {
		if len(t.names) >= MaxNames {
			return netip.Addr{}, fault.Newf(fault.Exhausted, "names_exhausted", "this sandbox has used %d names, the most it may", MaxNames).
				WithHint("reach fewer hosts, or start another sandbox")
		}
		i = len(t.names)
		t.names = append(t.names, name)
		t.index[name] = i
	}
	return synthetic(i), nil
}

// Name returns the name of an address.
func (t *Table) Name(a netip.Addr) (string, bool) {
	i, ok := number(a.Unmap())
	if !ok {
		return "", false
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if i >= len(t.names) {
		return "", false
	}
	return t.names[i], true
}

// perBlock excludes .0 and .255, which some programs treat as network and broadcast addresses.
const perBlock = 254

func synthetic(i int) netip.Addr {
	b := egress.Synthetic.Addr().As4()
	b[2] = byte(i / perBlock)
	b[3] = byte(i%perBlock + 1)
	return netip.AddrFrom4(b)
}

// number returns the index of a synthetic address. It is the inverse of synthetic.
func number(a netip.Addr) (int, bool) {
	if !a.Is4() || !egress.Synthetic.Contains(a) {
		return 0, false
	}
	b := a.As4()
	if b[3] == 0 || b[3] == 255 || b[1] != egress.Synthetic.Addr().As4()[1] {
		return 0, false
	}
	return int(b[2])*perBlock + int(b[3]) - 1, true
}
