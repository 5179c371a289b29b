// Package probe owns the readiness probe from inside: before a sandbox is ready, its first process
// tries what the policy forbids and what it allows. If the result of one try is wrong, the sandbox
// never becomes ready.
package probe

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Failure is the beginning of the message of a sandbox whose checks fail.
const Failure = "the policy does not hold inside: "

// patience limits one try. No answer by then counts as no answer.
const patience = 500 * time.Millisecond

// namePatience limits the wait for a name that must have an address. The name server may be busy
// with many sandboxes, and a sandbox with a working network must not be refused because of that.
const namePatience = 5 * time.Second

// Checks are what must hold. Empty fields are not checked.
type Checks struct {
	// Offline means that there is no network: no outside address has a route.
	Offline bool `json:"offline,omitempty"`
	// Refused are addresses with ports to which no connection may succeed.
	Refused []string `json:"refused,omitempty"`
	// Dropped are addresses with ports that a datagram must not reach.
	Dropped []string `json:"dropped,omitempty"`
	// Known are names that must have an address, Unknown those that must not.
	Known   []string `json:"known,omitempty"`
	Unknown []string `json:"unknown,omitempty"`
	// Reached and Closed are ports of known names, as name:port: a connection must succeed, or must
	// fail. Nothing is sent on it.
	Reached []string `json:"reached,omitempty"`
	Closed  []string `json:"closed,omitempty"`
	// Hidden are paths that must show nothing, ReadOnly paths that must not be writable, not even
	// for root inside.
	Hidden   []string `json:"hidden,omitempty"`
	ReadOnly []string `json:"read_only,omitempty"`
	// Sealed are directories in which the users of programs cannot create files.
	Sealed []string `json:"sealed,omitempty"`
	// The most that the kernel inside may offer: memory, disk, files, and processes of one user.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	DiskBytes   int64 `json:"disk_bytes,omitempty"`
	DiskInodes  int64 `json:"disk_inodes,omitempty"`
	PIDs        int64 `json:"pids,omitempty"`
}

// As does work as the user as whom programs run.
type As func(work func() error) error

// Run makes all checks at once and returns an error that names all that fail, in a stable order.
//
// Datagrams are sent first and checked last. The attachment carries data in order, so an answer to
// a datagram has arrived when a connection or a query that was sent after it is settled. Only if
// nothing was sent after them does the check wait for its full time.
func Run(ctx context.Context, c Checks, as As) error {
	var wrong findings
	var sent []datagram
	for _, address := range c.Dropped {
		d, err := send(address)
		wrong.add(err)
		if err == nil {
			sent = append(sent, d)
		}
	}
	var group sync.WaitGroup
	for _, look := range c.looks(as) {
		group.Go(func() { wrong.add(look(ctx)) })
	}
	group.Wait()
	settled := len(c.Refused)+len(c.Unknown)+len(c.Known) > 0
	for _, d := range sent {
		wrong.add(d.late(ctx, settled))
	}
	return wrong.err()
}

// looks returns all checks but those of datagrams.
func (c Checks) looks(as As) []func(context.Context) error {
	var looks []func(context.Context) error
	each := func(list []string, limit time.Duration, look func(context.Context, string) error) {
		for _, what := range list {
			looks = append(looks, func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, limit)
				defer cancel()
				return look(ctx, what)
			})
		}
	}
	each(c.Refused, patience, refused)
	each(c.Known, namePatience, c.host)
	each(c.Unknown, patience, unknown)
	each(c.Hidden, patience, hidden)
	each(c.ReadOnly, patience, readOnly)
	each(c.Sealed, patience, func(ctx context.Context, dir string) error {
		return as(func() error { return readOnly(ctx, dir) })
	})
	each(c.unnamed(), patience, func(_ context.Context, at string) error {
		return fmt.Errorf("%s is not a port of a known name", at)
	})
	if c.Offline {
		looks = append(looks, offline)
	}
	if c.MemoryBytes > 0 {
		looks = append(looks, func(context.Context) error { return memory(c.MemoryBytes) })
	}
	if c.DiskBytes > 0 || c.DiskInodes > 0 {
		looks = append(looks, func(context.Context) error { return disk(c.DiskBytes, c.DiskInodes) })
	}
	if c.PIDs > 0 {
		looks = append(looks, func(context.Context) error { return processes(c.PIDs) })
	}
	return looks
}

// findings collects failed checks.
type findings struct {
	mu    sync.Mutex
	wrong []string
}

func (f *findings) add(err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wrong = append(f.wrong, err.Error())
}

func (f *findings) err() error {
	if len(f.wrong) == 0 {
		return nil
	}
	slices.Sort(f.wrong)
	return fmt.Errorf("%s%q", Failure, f.wrong)
}
