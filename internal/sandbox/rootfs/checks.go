package rootfs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/probe"
	"github.com/crannog/crannog/internal/guest/proxyport"
	"github.com/crannog/crannog/internal/host/text"
	"github.com/crannog/crannog/internal/sandbox"
)

// maxProbed limits the number of paths that are tried. All are mounted in the same way, so a few
// are representative.
const maxProbed = 8

// checks returns the checks that the sandbox's first process makes before it is ready, and a
// description of each.
func checks(r sandbox.Row, p *policy.Policy, c Masks, info engine.Info) (probe.Checks, []string) {
	if r.Boundary == engine.NoBoundary {
		return probe.Checks{}, nil // there is no boundary that could enforce anything
	}
	probes := p.Probes()
	checks := probe.Checks{
		Refused:  probes.Refused,
		Dropped:  probes.Dropped,
		Hidden:   firstPaths(c.hide),
		ReadOnly: firstPaths(c.readOnly),
	}
	if r.Base.NoRoot {
		checks.Sealed = unwritableDirs(p.Files())
	}
	if r.Access.Linked() {
		checks.Known, checks.Unknown, checks.Reached, checks.Closed = probes.Known, probes.Unknown, probes.Reached, probes.Closed
		if info.Attachment() == engine.EgressProxy {
			checks.Proxy = proxyport.Proxy.String()
		}
	} else {
		// Without an egress gateway there is no resolver to query.
		checks.Offline = true
	}
	for _, l := range []struct {
		limit engine.Limit
		value int64
		check *int64
	}{
		{engine.LimitMemory, r.Limits.MemoryBytes, &checks.MemoryBytes}, {engine.LimitDisk, r.Limits.DiskBytes, &checks.DiskBytes},
		{engine.LimitInodes, r.Limits.DiskInodes, &checks.DiskInodes}, {engine.LimitPIDs, r.Limits.PIDs, &checks.PIDs},
	} {
		if slices.Contains(r.Enforced, l.limit) && slices.Contains(info.Shows, l.limit) {
			*l.check = l.value
		}
	}
	// A guest of an earlier version, in saved memory, does not implement these.
	if r.Base.Knows < 1 {
		checks.Reached, checks.Closed, checks.Sealed, checks.DiskInodes, checks.PIDs = nil, nil, nil, 0, 0
	}
	return checks, append(describeChecks(checks), describeBounds(r, info.Shows)...)
}

// firstPaths returns the first paths of a list, at most maxProbed.
func firstPaths(list []string) []string { return list[:min(len(list), maxProbed)] }

// describeChecks returns a description of each check.
func describeChecks(c probe.Checks) []string {
	var list []string
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if c.Offline || c.Proxy != "" {
		add("no address outside has a route")
	}
	for _, a := range c.Refused {
		add("no connection to %s", a)
	}
	for _, a := range c.Dropped {
		add("no answer to a datagram to %s", a)
	}
	for _, n := range c.Unknown {
		add("the name %s has no address", n)
	}
	for _, n := range c.Known {
		add("the name %s has an address", n)
	}
	for _, at := range c.Reached {
		add("a connection to %s opens", at)
	}
	for _, at := range c.Closed {
		add("no connection to %s", at)
	}
	for _, f := range c.Hidden {
		add("%s shows nothing", f)
	}
	for _, f := range c.ReadOnly {
		add("%s cannot be written", f)
	}
	for _, f := range c.Sealed {
		add("no file can be made in %s", f)
	}
	if c.MemoryBytes > 0 {
		add("no more than %d bytes of memory", c.MemoryBytes)
	}
	if c.DiskBytes > 0 {
		add("no more than %d bytes of disk", c.DiskBytes)
	}
	if c.DiskInodes > 0 {
		add("no more than %d files", c.DiskInodes)
	}
	if c.PIDs > 0 {
		add("no more than %d processes", c.PIDs)
	}
	return list
}

// BootError returns the error of a boot that the guest aborted, with the guest's reason if there is
// one.
func BootError(err error) error { return explainOldGuest(explainFinding(err)) }

// explainOldGuest explains the failure of a guest in saved memory that does not implement all
// checks of this version. Without the missing checks it is not proved that limits and policy hold.
func explainOldGuest(err error) error {
	if err == nil || !strings.Contains(err.Error(), guest.Unknown) {
		return err
	}
	return fault.Wrap(err, fault.Conflict, "snapshot_guest", "the state was saved by an earlier version of crannog, whose guest lacks checks of this version").
		WithHint("resume only its files: crannog resume --files-only; or use the version that saved it")
}

// maxFinding limits the length of a reported finding.
const maxFinding = 400

// explainFinding returns the error of a boot that the guest aborted because the policy did not
// hold. A bare internal error would make callers try again. The text comes from a sandbox, so it is
// shortened, and line breaks and control characters are removed.
func explainFinding(err error) error {
	if err == nil || !strings.Contains(err.Error(), probe.Failure) {
		return err
	}
	found := err.Error()
	found = text.Line(found[strings.Index(found, probe.Failure):], maxFinding)
	return fault.Wrap(err, fault.Unsupported, "policy_not_effective", found).
		WithHint("nothing was started; this is a fault of crannog or of its engine, please report it with the output of crannog doctor")
}
