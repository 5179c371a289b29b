// Package probe owns the look from inside: before a sandbox is ready, its
// first process tries what the policy forbids and what it promises, and a
// sandbox in which one of them turns out otherwise never becomes ready.
package probe

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Failure begins the message of a sandbox that is not what was asked for.
const Failure = "the policy does not hold inside: "

// patience bounds one look. What does not answer by then did not answer.
const patience = 500 * time.Millisecond

// Checks are what has to hold. Empty fields are not looked at.
type Checks struct {
	// Offline says that there is no link: no address outside has a route.
	Offline bool `json:"offline,omitempty"`
	// Refused are addresses with ports to which no connection may come about.
	Refused []string `json:"refused,omitempty"`
	// Dropped are addresses with ports that a datagram must not reach.
	Dropped []string `json:"dropped,omitempty"`
	// Known are names that must have an address, Unknown those that must not.
	Known   []string `json:"known,omitempty"`
	Unknown []string `json:"unknown,omitempty"`
	// Hidden are paths that must show nothing, ReadOnly those that must not
	// be writable, not even for the superuser inside.
	Hidden   []string `json:"hidden,omitempty"`
	ReadOnly []string `json:"read_only,omitempty"`
	// MemoryBytes and DiskBytes are the most that the kernel inside may offer.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	DiskBytes   int64 `json:"disk_bytes,omitempty"`
}

// Run looks at everything at once and returns an error that names all that
// does not hold, in a stable order.
func Run(ctx context.Context, c Checks) error {
	var looks []func(context.Context) error
	each := func(list []string, look func(context.Context, string) error) {
		for _, what := range list {
			looks = append(looks, func(ctx context.Context) error { return look(ctx, what) })
		}
	}
	each(c.Refused, refused)
	each(c.Dropped, dropped)
	each(c.Known, known)
	each(c.Unknown, unknown)
	each(c.Hidden, hidden)
	each(c.ReadOnly, readOnly)
	if c.Offline {
		looks = append(looks, offline)
	}
	if c.MemoryBytes > 0 {
		looks = append(looks, func(context.Context) error { return memory(c.MemoryBytes) })
	}
	if c.DiskBytes > 0 {
		looks = append(looks, func(context.Context) error { return disk(c.DiskBytes) })
	}
	var wrong []string
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, look := range looks {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			if err := look(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				wrong = append(wrong, err.Error())
			}
		})
	}
	group.Wait()
	if len(wrong) == 0 {
		return nil
	}
	slices.Sort(wrong)
	return fmt.Errorf("%s%q", Failure, wrong)
}
