// Package probe owns the readiness probe inside a sandbox: before the sandbox is ready, its first
// process tests what the policy forbids and allows. If one test has the wrong result, the sandbox
// never becomes ready.
package probe

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Failure is the prefix of the message of a sandbox whose checks fail.
const Failure = "the policy does not hold inside: "

// tryTimeout limits one test. No answer within this time counts as no answer.
const tryTimeout = 500 * time.Millisecond

// nameTimeout limits the wait for a name that must have an address. The DNS server may be busy with
// many sandboxes, which must not make a correct sandbox fail.
const nameTimeout = 5 * time.Second

// Checks are the conditions that must hold. Empty fields are not checked.
type Checks struct {
	// Offline means that there is no network: no outside address has a route.
	Offline bool `json:"offline,omitempty"`
	// Refused lists address:port to which no connection may succeed.
	Refused []string `json:"refused,omitempty"`
	// Dropped lists address:port that datagrams must not reach.
	Dropped []string `json:"dropped,omitempty"`
	// Known lists names that must have an address, Unknown names that must not.
	Known   []string `json:"known,omitempty"`
	Unknown []string `json:"unknown,omitempty"`
	// Reached and Closed list ports of known names, as name:port, to which a connection must
	// succeed or fail. No data is sent.
	Reached []string `json:"reached,omitempty"`
	Closed  []string `json:"closed,omitempty"`
	// Proxy is the address of the HTTP proxy through which Refused, Reached and Closed are also
	// tried, in a sandbox without a network interface. Without an interface, no address outside may
	// have a route.
	Proxy string `json:"proxy,omitempty"`
	// Hidden lists paths that must have no content. ReadOnly lists paths that must not be writable,
	// even for root inside.
	Hidden   []string `json:"hidden,omitempty"`
	ReadOnly []string `json:"read_only,omitempty"`
	// Sealed lists directories in which the users of programs must not be able to create files.
	Sealed []string `json:"sealed,omitempty"`
	// Maximum values that the kernel inside may offer: memory, disk, files, and processes of one
	// user.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	DiskBytes   int64 `json:"disk_bytes,omitempty"`
	DiskInodes  int64 `json:"disk_inodes,omitempty"`
	PIDs        int64 `json:"pids,omitempty"`
}

// As runs work as the user of the sandbox's programs.
type As func(work func() error) error

// Run runs all checks concurrently and returns an error that lists all failures in a stable order.
//
// It sends datagrams first and checks them last. The attachment delivers in order, so an answer to
// a datagram has arrived when a later connection or query is settled. Only if nothing was sent
// later, the check waits for the full time.
func Run(ctx context.Context, c Checks, as As) error {
	var found failures
	var sent []datagram
	for _, address := range c.Dropped {
		d, err := send(address)
		found.add(err)
		if err == nil {
			sent = append(sent, d)
		}
	}
	var group sync.WaitGroup
	for _, check := range c.connectionChecks(as) {
		group.Go(func() { found.add(check(ctx)) })
	}
	group.Wait()
	settled := len(c.Refused)+len(c.Unknown)+len(c.Known) > 0
	for _, d := range sent {
		found.add(d.checkUnanswered(ctx, settled))
	}
	return found.err()
}

// connectionChecks returns all checks except those of datagrams.
func (c Checks) connectionChecks(as As) []func(context.Context) error {
	var checks []func(context.Context) error
	each := func(list []string, limit time.Duration, check func(context.Context, string) error) {
		for _, what := range list {
			checks = append(checks, func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, limit)
				defer cancel()
				return check(ctx, what)
			})
		}
	}
	each(c.Refused, tryTimeout, checkRefused)
	each(c.Known, nameTimeout, c.checkName)
	each(c.Unknown, tryTimeout, checkUnknown)
	each(c.Hidden, tryTimeout, checkHidden)
	each(c.ReadOnly, tryTimeout, checkReadOnly)
	each(c.Sealed, tryTimeout, func(ctx context.Context, dir string) error {
		return as(func() error { return checkReadOnly(ctx, dir) })
	})
	each(c.unknownHosts(), tryTimeout, func(_ context.Context, at string) error {
		return fmt.Errorf("%s is not a port of a known name", at)
	})
	if c.Proxy != "" {
		each(c.Refused, tryTimeout, func(ctx context.Context, at string) error { return checkClosedThrough(ctx, c.Proxy, at) })
	}
	if c.Offline || c.Proxy != "" {
		checks = append(checks, checkOffline)
	}
	if c.MemoryBytes > 0 {
		checks = append(checks, func(context.Context) error { return checkMemory(c.MemoryBytes) })
	}
	if c.DiskBytes > 0 || c.DiskInodes > 0 {
		checks = append(checks, func(context.Context) error { return checkDisk(c.DiskBytes, c.DiskInodes) })
	}
	if c.PIDs > 0 {
		checks = append(checks, func(context.Context) error { return checkProcesses(c.PIDs) })
	}
	return checks
}

// failures collects failed checks.
type failures struct {
	mu    sync.Mutex
	texts []string
}

func (f *failures) add(err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.texts = append(f.texts, err.Error())
}

func (f *failures) err() error {
	if len(f.texts) == 0 {
		return nil
	}
	slices.Sort(f.texts)
	return fmt.Errorf("%s%q", Failure, f.texts)
}
