package sandbox

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"github.com/crannog/crannog/internal/causeway/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/probe"
)

// Addresses that nothing inside may ever reach, whatever its policy: the
// metadata service of most clouds, and an address that is nobody's.
const (
	metadataAddress = "169.254.169.254:80"
	nobodysDatagram = "192.0.2.1:9"
	nobodysName     = "crannog-probe.invalid"
)

// maxProbed bounds the paths that are tried. All are mounted in one way, so a
// few stand for all.
const maxProbed = 8

// checks are what the sandbox's first process tries before it is ready, and
// the same in words.
func (s *Service) checks(r Record, p *policy.Policy, c covered) (probe.Checks, []string) {
	if r.Boundary == engine.NoBoundary {
		return probe.Checks{}, nil // there is no wall that could hold anything
	}
	checks := probe.Checks{
		Refused:  []string{metadataAddress},
		Dropped:  []string{nobodysDatagram},
		Hidden:   firstOf(c.hide),
		ReadOnly: firstOf(c.readOnly),
	}
	if r.Access.Linked() {
		// Where nobody lists hosts, every name has an address, and each
		// connection is judged.
		if !p.Reachable(nobodysName) {
			checks.Unknown = []string{nobodysName}
		}
		checks.Known = reachable(p)
	} else {
		// Without a way out nobody outside can be asked for a name.
		checks.Offline = true
	}
	if slices.Contains(r.Enforced, engine.LimitMemory) {
		checks.MemoryBytes = r.Limits.MemoryBytes
	}
	if slices.Contains(r.Enforced, engine.LimitDisk) {
		checks.DiskBytes = r.Limits.DiskBytes
	}
	return checks, words(checks)
}

func firstOf(list []string) []string { return list[:min(len(list), maxProbed)] }

// reachable is one host that the policy lets through, if it lists any by its
// whole name.
func reachable(p *policy.Policy) []string {
	for _, h := range p.Document().Network.Hosts {
		if h.Host == "" || strings.HasPrefix(h.Host, "*") {
			continue
		}
		if _, err := netip.ParseAddr(h.Host); err == nil {
			continue
		}
		if p.Reachable(h.Host) {
			return []string{h.Host}
		}
	}
	return nil
}

func words(c probe.Checks) []string {
	var list []string
	say := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if c.Offline {
		say("no address outside has a route")
	}
	for _, a := range c.Refused {
		say("no connection to %s", a)
	}
	for _, a := range c.Dropped {
		say("no answer to a datagram to %s", a)
	}
	for _, n := range c.Unknown {
		say("the name %s has no address", n)
	}
	for _, n := range c.Known {
		say("the name %s has an address", n)
	}
	for _, f := range c.Hidden {
		say("%s shows nothing", f)
	}
	for _, f := range c.ReadOnly {
		say("%s cannot be written", f)
	}
	if c.MemoryBytes > 0 {
		say("no more than %d bytes of memory", c.MemoryBytes)
	}
	if c.DiskBytes > 0 {
		say("no more than %d bytes of disk", c.DiskBytes)
	}
	return list
}

// maxFinding bounds what is told of a look from inside that failed.
const maxFinding = 400

// disagreed gives a boot that the guest broke off, because the policy did not
// hold, an error that says so: who is told of an internal error alone would
// only try again. The words come out of a box, so they are bounded, and lines
// and controls in them are nothing that a terminal or log would act on.
func disagreed(err error) error {
	if err == nil || !strings.Contains(err.Error(), probe.Failure) {
		return err
	}
	text := err.Error()
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text[strings.Index(text, probe.Failure):])
	if len(text) > maxFinding {
		text = strings.ToValidUTF8(text[:maxFinding], "") + "…"
	}
	return fault.Wrap(err, fault.Unsupported, "policy_not_effective", text).
		WithHint("nothing was started; this is a fault of crannog or of its engine, please report it with the output of crannog doctor")
}
