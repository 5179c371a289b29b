package enginetest

import (
	"fmt"
	"os"
	"slices"

	"github.com/crannog/crannog/internal/engine"
)

// needs lists the features that an engine must declare for a rule to run.
type needs struct {
	can      []engine.Capability
	enforces []engine.Limit
	shows    []engine.Limit
	egress   engine.EgressKind
	// programs is set for rules that run programs of a Linux image. They need an image with
	// programs, and a boundary: without one, the programs would attack this machine instead of a
	// sandbox.
	programs bool
	// complete is set for rules of an Observer that sees everything (engine.Info.Unseen is empty).
	complete bool
	// background is set for rules in which a program starts another one, which WebAssembly modules
	// cannot do.
	background bool
	// shared is set for rules that apply only to sandboxes on the host's kernel, and own for rules
	// that apply only to sandboxes with another kernel.
	shared, own bool
	// ownRoot requires an engine with engine.Info.OwnRoot that starts from a view of the host.
	ownRoot bool
	// volumes requires an engine that shows volumes.
	volumes bool
	// workspace requires an engine that adds a workspace to saved memory.
	workspace bool
	// root requires tests that run as root, because they mount a file system.
	root bool
	// config names a field of Config that must be set.
	config string
}

// programImages are the kinds of images that contain Linux programs.
var programImages = []engine.ImageKind{engine.ImageHostView, engine.ImageLayers, engine.ImageOCI, engine.ImageDisk}

// needsByRule lists the needs of rules or groups of rules. If several entries match a rule, the
// rule needs all of their features. A rule without an entry runs on every engine.
var needsByRule = []struct {
	rules string
	needs needs
}{
	{"exec/", needs{programs: true}},
	{"boundary/", needs{programs: true}},
	{"cover/", needs{programs: true}},
	{"cover/volumes-are-shared-with-the-host", needs{volumes: true}},
	{"cover/volumes-are-bounded-by-their-file-system", needs{volumes: true, root: true}},
	{"cover/volumes-are-no-part-of-a-state", needs{volumes: true, can: can(engine.CanCheckpoint)}},
	{"shared-kernel/", needs{programs: true, shared: true}},
	{"owners/", needs{programs: true}},
	{"owners/hold-in-a-copy", needs{can: can(engine.CanCheckpoint)}},
	{"imageowners/", needs{programs: true, ownRoot: true}},
	{"imageowners/hold-in-a-copy", needs{can: can(engine.CanCheckpoint)}},
	{"namespaces/", needs{programs: true, own: true}},
	{"changes/", needs{programs: true}},

	{"limits/memory-ends-the-sandbox-with-a-reason", needs{programs: true, enforces: limits(engine.LimitMemory)}},
	{"limits/programs-see-the-memory-limit", needs{programs: true, shows: limits(engine.LimitMemory)}},
	{"limits/closed-connections-are-forgotten", needs{programs: true, own: true}},
	{"limits/disk-is-full-at-the-limit", needs{programs: true, enforces: limits(engine.LimitDisk)}},
	{"limits/files-are-bounded", needs{programs: true, enforces: limits(engine.LimitInodes)}},
	{"limits/processes-are-bounded", needs{programs: true, enforces: limits(engine.LimitPIDs)}},
	{"limits/cpu-is-bounded", needs{programs: true, enforces: limits(engine.LimitCPU), can: can(engine.CanMeasure)}},
	{"limits/usage-grows", needs{can: can(engine.CanMeasure)}},

	{"link/", needs{programs: true, egress: engine.EgressPackets}},

	{"proxy/", needs{programs: true, egress: engine.EgressProxy}},

	{"state/", needs{can: can(engine.CanCheckpoint)}},
	{"state/memory-files-and-listeners-continue", needs{programs: true}},
	{"state/limits-hold-in-a-copy", needs{programs: true, enforces: limits(engine.LimitPIDs, engine.LimitDisk)}},
	{"state/a-copy-has-a-separate-memory-limit", needs{programs: true, enforces: limits(engine.LimitMemory)}},
	{"state/a-copy-has-a-separate-group", needs{config: "Groups"}},
	{"state/covers-hold-in-a-copy", needs{programs: true}},
	{"workspace/", needs{programs: true, can: can(engine.CanCheckpoint), workspace: true}},
	{"memory/", needs{programs: true, can: can(engine.CanCheckpoint)}},
	{"benchmarks/", needs{can: can(engine.CanCheckpoint)}},

	{"archive/", needs{can: can(engine.CanArchive)}},
	{"archive/has-kinds-owners-and-removals", needs{programs: true}},
	{"archive/nothing-runs-while-files-are-extracted", needs{can: can(engine.CanCheckpoint)}},
	{"archive/busy-programs-do-not-run-while-files-are-extracted", needs{programs: true, can: can(engine.CanCheckpoint)}},
	{"archive/large-files-do-not-end-the-sandbox", needs{programs: true, enforces: limits(engine.LimitMemory)}},

	{"freeze/", needs{can: can(engine.CanFreeze)}},
	{"freeze/programs-stop-and-continue", needs{background: true}},
	{"freeze/a-frozen-sandbox-is-not-saved", needs{can: can(engine.CanCheckpoint)}},
	{"freeze/a-frozen-sandbox-is-not-archived", needs{can: can(engine.CanArchive)}},

	{"bound/", needs{can: can(engine.CanCheckpoint, engine.CanBind)}},
	{"bound/F24-lists-exactly-open-and-mapped-files", needs{programs: true}},
	{"bound/F24-restores-with-copies-of-changed-files", needs{programs: true}},
	{"bound/F24-moved-files-make-the-list-unknown", needs{programs: true}},

	{"copies/", needs{can: can(engine.CanCheckpoint)}},
	{"copies/have-their-own-identity", needs{programs: true}},
	{"copies/only-the-guest-may-change-the-identity", needs{config: "Forbidden"}},
	{"copies/clocks-are-right", needs{programs: true}},
	{"copies/a-full-disk-does-not-end-the-source", needs{programs: true}},
	{"copies/have-their-own-links", needs{programs: true, egress: engine.EgressPackets}},
	{"copies/links-are-not-restored-with-the-memory", needs{programs: true, egress: engine.EgressPackets}},
	{"copies/a-link-is-replaced-with-its-sandbox", needs{programs: true, egress: engine.EgressPackets}},

	{"prestarted/", needs{programs: true, can: can(engine.CanCheckpoint, engine.CanWarm)}},
	{"prestarted/have-their-own-links", needs{egress: engine.EgressPackets}},
	{"prestarted/are-watched-when-used", needs{can: can(engine.CanObserve)}},

	{"record/", needs{can: can(engine.CanObserve)}},
	{"record/variables-have-no-values", needs{programs: true}},
	{"record/ends-have-codes-and-signals", needs{programs: true}},
	{"record/orphans-belong-to-their-command", needs{programs: true}},
	{"record/long-arguments-are-cut", needs{programs: true}},
	{"record/a-full-file-refuses-programs-until-it-is-freed", needs{programs: true, complete: true}},
	{"record/outlives-the-process-that-started-it", needs{complete: true}},
	{"record/only-changes-are-recorded", needs{programs: true}},
	{"record/names-are-real-paths", needs{programs: true}},
	{"record/open-files-are-checked-again", needs{programs: true}},
	{"record/unnamed-files-that-get-a-name", needs{programs: true}},
	{"record/restored-sandboxes-are-watched-from-the-start", needs{programs: true, can: can(engine.CanCheckpoint)}},
	{"record/copies-and-replaced-sandboxes-are-watched", needs{can: can(engine.CanCheckpoint)}},
	{"record/continues-with-zombies", needs{programs: true, can: can(engine.CanCheckpoint)}},
	{"record/replaced-sandboxes-continue-the-same-file", needs{programs: true, can: can(engine.CanCheckpoint)}},
	{"record/removal-leaves-no-descriptor", needs{programs: true, complete: true}},
	{"record/programs-cannot-stop-it", needs{programs: true}},
	{"record/the-end-of-the-guest-loses-nothing", needs{programs: true}},
	{"record/a-race-does-not-hide-a-name", needs{programs: true}},
	{"record/system-calls-return-the-same-results", needs{programs: true}},
	{"record/reached-limits-are-recorded", needs{programs: true, complete: true, enforces: limits(engine.LimitDisk, engine.LimitInodes, engine.LimitPIDs)}},
	{"record/limits-that-a-program-sets-are-not-recorded", needs{programs: true, enforces: limits(engine.LimitPIDs)}},
}

// can and limits keep the entries of needsByRule short.

func can(list ...engine.Capability) []engine.Capability { return list }

func limits(list ...engine.Limit) []engine.Limit { return list }

// needs returns all needs of the rule.
func (r rule) needs() (all needs) {
	for _, n := range needsByRule {
		if !r.in(n.rules) {
			continue
		}
		all.can = append(all.can, n.needs.can...)
		all.enforces = append(all.enforces, n.needs.enforces...)
		all.shows = append(all.shows, n.needs.shows...)
		all.programs = all.programs || n.needs.programs
		all.complete = all.complete || n.needs.complete
		all.background = all.background || n.needs.background
		all.shared, all.own = all.shared || n.needs.shared, all.own || n.needs.own
		all.ownRoot = all.ownRoot || n.needs.ownRoot
		all.volumes = all.volumes || n.needs.volumes
		all.workspace = all.workspace || n.needs.workspace
		all.root = all.root || n.needs.root
		if n.needs.egress != "" {
			all.egress = n.needs.egress
		}
		if n.needs.config != "" {
			all.config = n.needs.config
		}
	}
	return all
}

// missing lists the needs that the engine does not declare.
func (n needs) missing(info engine.Info, c *Config) (list []string) {
	for _, capability := range n.can {
		if !slices.Contains(info.Capabilities, capability) {
			list = append(list, "the capability "+string(capability))
		}
	}
	for _, one := range n.enforces {
		if !slices.Contains(info.Enforces, one) {
			list = append(list, fmt.Sprintf("a limit of %s", one))
		}
	}
	for _, one := range n.shows {
		if !slices.Contains(info.Shows, one) {
			list = append(list, fmt.Sprintf("a limit of %s that programs can see", one))
		}
	}
	if n.egress != "" && !slices.Contains(info.Egress, n.egress) {
		list = append(list, fmt.Sprintf("an egress of the kind %s", n.egress))
	}
	if n.own && sharesKernel(info) {
		list = append(list, "a separate kernel of the sandbox")
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
	if n.complete && len(info.Unseen) > 0 {
		list = append(list, "an observer that sees everything")
	}
	if n.background && !slices.ContainsFunc(info.Images, func(k engine.ImageKind) bool { return k != engine.ImageModule }) {
		list = append(list, "programs that start other programs")
	}
	if n.ownRoot && (!info.OwnRoot || c.Image.Kind() != engine.ImageHostView) {
		list = append(list, "a separate root user and a view of the host")
	}
	if n.volumes && !info.Volumes {
		list = append(list, "volumes")
	}
	if n.workspace && !info.TakesWorkspace {
		list = append(list, "workspaces that are added to saved memory")
	}
	if n.root && os.Geteuid() != 0 {
		list = append(list, "tests that run as root")
	}
	if n.config == "Groups" && c.Groups == nil || n.config == "Forbidden" && len(c.Forbidden) == 0 {
		list = append(list, "the configuration "+n.config)
	}
	return list
}

// undeclared lists the differences between the declaration of an engine and its implementation.
func undeclared(e engine.Engine) (list []string) {
	info, implemented := e.Info(), engine.Implemented(e)
	for _, one := range implemented {
		if !slices.Contains(info.Capabilities, one) {
			list = append(list, fmt.Sprintf("the engine implements the capability %s and does not declare it", one))
		}
	}
	for _, one := range info.Capabilities {
		if !slices.Contains(implemented, one) {
			list = append(list, fmt.Sprintf("the engine declares the capability %s and does not implement it", one))
		}
	}
	if info.Name == "" || !info.Boundary.AtLeast(engine.NoBoundary) || len(info.Images) == 0 || len(info.Egress) == 0 {
		list = append(list, fmt.Sprintf("the engine does not declare its name, boundary, images and egress: %+v", info))
	}
	return list
}
