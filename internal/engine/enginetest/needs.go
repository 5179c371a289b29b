package enginetest

import (
	"fmt"
	"slices"

	"github.com/crannog/crannog/internal/engine"
)

// needs is what an engine declares for a rule to run.
type needs struct {
	can      []engine.Capability
	enforces []engine.Limit
	shows    []engine.Limit
	egress   engine.EgressKind
	// programs is set for rules that run programs of a Linux image. They need an image that has
	// any, and a boundary: without one, the programs would do to this machine what they should do
	// to a sandbox.
	programs bool
	// background is set for rules in which a program starts another one, which WebAssembly
	// modules cannot.
	background bool
	// shared is set for rules of sandboxes whose kernel is the host's, and own for rules of
	// those that have another.
	shared, own bool
	// ownRoot is an engine with engine.Info.OwnRoot that starts from a view of the host.
	ownRoot bool
	// config names a field of Config that must be set.
	config string
}

// programImages are the images that have programs of Linux.
var programImages = []engine.ImageKind{engine.ImageHostView, engine.ImageLayers, engine.ImageOCI, engine.ImageDisk}

// needed is what rules, or groups of them, need. A rule that is in several entries
// needs all of it; one that is in none runs on every engine.
var needed = []struct {
	rules string
	needs needs
}{
	{"exec/", needs{programs: true}},
	{"boundary/", needs{programs: true}},
	{"cover/", needs{programs: true}},
	{"shared-kernel/", needs{programs: true, shared: true}},
	{"owners/", needs{programs: true}},
	{"owners/hold-in-a-copy", needs{can: can(engine.CanCheckpoint)}},
	{"imageowners/", needs{programs: true, ownRoot: true}},
	{"imageowners/hold-in-a-copy", needs{can: can(engine.CanCheckpoint)}},
	{"namespaces/", needs{programs: true, own: true}},
	{"changes/", needs{programs: true}},

	{"limits/memory-ends-the-box-and-says-so", needs{programs: true, enforces: limits(engine.LimitMemory)}},
	{"limits/programs-see-the-memory-limit", needs{programs: true, shows: limits(engine.LimitMemory)}},
	{"limits/closed-connections-are-forgotten", needs{programs: true, own: true}},
	{"limits/disk-is-full-at-the-limit", needs{programs: true, enforces: limits(engine.LimitDisk)}},
	{"limits/files-are-bounded", needs{programs: true, enforces: limits(engine.LimitInodes)}},
	{"limits/processes-are-bounded", needs{programs: true, enforces: limits(engine.LimitPIDs)}},
	{"limits/cpu-is-bounded", needs{programs: true, enforces: limits(engine.LimitCPU), can: can(engine.CanMeasure)}},
	{"limits/usage-grows", needs{can: can(engine.CanMeasure)}},

	{"link/", needs{programs: true, egress: engine.EgressPackets}},

	{"state/", needs{can: can(engine.CanCheckpoint)}},
	{"state/memory-files-and-listeners-go-on", needs{programs: true}},
	{"state/limits-hold-in-a-copy", needs{programs: true, enforces: limits(engine.LimitPIDs, engine.LimitDisk)}},
	{"state/a-copys-memory-limit-is-its-own", needs{programs: true, enforces: limits(engine.LimitMemory)}},
	{"state/a-copy-has-a-group-of-its-own", needs{config: "Groups"}},
	{"state/covers-hold-in-a-copy", needs{programs: true}},
	{"memory/", needs{programs: true, can: can(engine.CanCheckpoint)}},
	{"benchmarks/", needs{can: can(engine.CanCheckpoint)}},

	{"archive/", needs{can: can(engine.CanArchive)}},
	{"archive/kinds-owners-and-removals", needs{programs: true}},
	{"archive/nothing-runs-while-files-are-extracted", needs{can: can(engine.CanCheckpoint)}},
	{"archive/busy-programs-do-not-run-while-files-are-extracted", needs{programs: true, can: can(engine.CanCheckpoint)}},
	{"archive/large-files-cost-no-box", needs{programs: true, enforces: limits(engine.LimitMemory)}},

	{"freeze/", needs{can: can(engine.CanFreeze)}},
	{"freeze/programs-stand-still-and-go-on", needs{background: true}},
	{"freeze/a-frozen-one-is-not-saved", needs{can: can(engine.CanCheckpoint)}},
	{"freeze/a-frozen-one-is-not-archived", needs{can: can(engine.CanArchive)}},

	{"bound/", needs{can: can(engine.CanCheckpoint, engine.CanBind)}},
	{"bound/F24-exactly-what-is-open-and-mapped", needs{programs: true}},
	{"bound/F24-goes-on-with-copies-of-what-changed", needs{programs: true}},
	{"bound/F24-what-was-moved-is-not-known", needs{programs: true}},

	{"copies/", needs{can: can(engine.CanCheckpoint)}},
	{"copies/are-not-each-other", needs{programs: true}},
	{"copies/only-the-guest-may-become-another", needs{config: "Forbidden"}},
	{"copies/know-the-time", needs{programs: true}},
	{"copies/a-full-disk-costs-nothing", needs{programs: true}},
	{"copies/links-are-their-own", needs{programs: true, egress: engine.EgressPackets}},
	{"copies/no-link-comes-with-the-memory", needs{programs: true, egress: engine.EgressPackets}},
	{"copies/a-link-is-replaced-with-its-box", needs{programs: true, egress: engine.EgressPackets}},

	{"spares/", needs{programs: true, can: can(engine.CanCheckpoint, engine.CanWarm)}},
	{"spares/links-are-their-own", needs{egress: engine.EgressPackets}},
	{"spares/one-is-watched-when-it-is-used", needs{can: can(engine.CanObserve)}},

	{"record/", needs{can: can(engine.CanObserve)}},
	{"record/names-of-variables-and-no-values", needs{programs: true}},
	{"record/ends-have-codes-and-signals", needs{programs: true}},
	{"record/orphans-belong-to-their-command", needs{programs: true}},
	{"record/long-arguments-are-cut", needs{programs: true}},
	{"record/a-full-file-refuses-programs-until-it-is-freed", needs{programs: true}},
	{"record/only-what-changed-is-told", needs{programs: true}},
	{"record/names-are-real-paths", needs{programs: true}},
	{"record/what-is-held-open-is-looked-at-again", needs{programs: true}},
	{"record/a-file-that-had-no-name", needs{programs: true}},
	{"record/restored-boxes-are-watched-from-the-start", needs{programs: true, can: can(engine.CanCheckpoint)}},
	{"record/copies-and-replaced-boxes-are-watched", needs{can: can(engine.CanCheckpoint)}},
	{"record/continues-with-programs-that-were-not-waited-for", needs{programs: true, can: can(engine.CanCheckpoint)}},
	{"record/replaced-boxes-go-on-in-the-same-file", needs{programs: true, can: can(engine.CanCheckpoint)}},
	{"record/removal-leaves-no-descriptor", needs{programs: true}},
	{"record/nothing-inside-stops-it", needs{programs: true}},
	{"record/the-end-of-the-guest-hides-nothing", needs{programs: true}},
	{"record/a-race-hides-no-name", needs{programs: true}},
	{"record/calls-answer-as-in-a-box-without-a-watcher", needs{programs: true}},
	{"record/limits-that-are-met-are-seen", needs{programs: true, enforces: limits(engine.LimitDisk, engine.LimitInodes, engine.LimitPIDs)}},
	{"record/bounds-of-a-programs-own-are-no-limits", needs{programs: true, enforces: limits(engine.LimitPIDs)}},
}

func can(list ...engine.Capability) []engine.Capability { return list }

func limits(list ...engine.Limit) []engine.Limit { return list }

// needs returns everything that the rule needs.
func (r rule) needs() (all needs) {
	for _, n := range needed {
		if !r.in(n.rules) {
			continue
		}
		all.can = append(all.can, n.needs.can...)
		all.enforces = append(all.enforces, n.needs.enforces...)
		all.shows = append(all.shows, n.needs.shows...)
		all.programs = all.programs || n.needs.programs
		all.background = all.background || n.needs.background
		all.shared, all.own = all.shared || n.needs.shared, all.own || n.needs.own
		all.ownRoot = all.ownRoot || n.needs.ownRoot
		if n.needs.egress != "" {
			all.egress = n.needs.egress
		}
		if n.needs.config != "" {
			all.config = n.needs.config
		}
	}
	return all
}

// missing lists which of these needs the engine does not declare.
func (n needs) missing(info engine.Info, c *Config) (list []string) {
	for _, one := range n.can {
		if !slices.Contains(info.Capabilities, one) {
			list = append(list, "the capability "+string(one))
		}
	}
	for _, one := range n.enforces {
		if !slices.Contains(info.Enforces, one) {
			list = append(list, fmt.Sprintf("a limit of %s", one))
		}
	}
	for _, one := range n.shows {
		if !slices.Contains(info.Shows, one) {
			list = append(list, fmt.Sprintf("a limit of %s that is shown inside", one))
		}
	}
	if n.egress != "" && !slices.Contains(info.Egress, n.egress) {
		list = append(list, fmt.Sprintf("an egress of the kind %s", n.egress))
	}
	if n.own && sharesKernel(info) {
		list = append(list, "a kernel of the sandbox's own")
	}
	if n.shared && !sharesKernel(info) {
		list = append(list, "a boundary of the kind shared-kernel")
	}
	if n.programs && !info.Boundary.AtLeast(engine.SharedKernel) {
		list = append(list, "a boundary around programs")
	}
	if n.programs && !slices.ContainsFunc(info.Images, func(k engine.ImageKind) bool { return slices.Contains(programImages, k) }) {
		list = append(list, "an image with programs")
	}
	if n.background && !slices.ContainsFunc(info.Images, func(k engine.ImageKind) bool { return k != engine.ImageModule }) {
		list = append(list, "programs that start others")
	}
	if n.ownRoot && (!info.OwnRoot || c.Image.Kind() != engine.ImageHostView) {
		list = append(list, "a root of its own and a view of the host")
	}
	if n.config == "Groups" && c.Groups == nil || n.config == "Forbidden" && len(c.Forbidden) == 0 {
		list = append(list, "the configuration "+n.config)
	}
	return list
}

// undeclared lists where the declaration of an engine and its implementation differ.
func undeclared(e engine.Engine) (list []string) {
	info, has := e.Info(), engine.Implemented(e)
	for _, one := range has {
		if !slices.Contains(info.Capabilities, one) {
			list = append(list, fmt.Sprintf("the engine implements the capability %s and does not declare it", one))
		}
	}
	for _, one := range info.Capabilities {
		if !slices.Contains(has, one) {
			list = append(list, fmt.Sprintf("the engine declares the capability %s and does not implement it", one))
		}
	}
	if info.Name == "" || !info.Boundary.AtLeast(engine.NoBoundary) || len(info.Images) == 0 || len(info.Egress) == 0 {
		list = append(list, fmt.Sprintf("the engine does not declare its name, boundary, images and egress: %+v", info))
	}
	return list
}
