package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/engine/jail"
	"github.com/crannog/crannog/internal/engine/jail/setup"
)

const (
	nameJailCold   = "jail, cold"
	nameJailWarm   = "jail, from the pool"
	namePoolCreate = "create, from the pool"
)

// jailFlags make the jail the engine of all sandboxes of a server.
var jailFlags = []string{"--default-engine", "jail", "--default-level", "light"}

// jailFigures compares the process jail with bubblewrap, which creates the same namespaces, and
// with no sandbox at all.
func jailFigures(ctx context.Context, b *bench) (err error) {
	cold, err := b.serve(ctx, b.crannog, "jail-cold", append(jailFlags, "--pool", "off", "--max-live", "1000")...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cold.close()) }()
	warm, err := b.serve(ctx, b.crannog, "jail-warm", append(jailFlags, "--verbose", "--max-live", "1000")...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, warm.close()) }()
	if err := b.jailLives(ctx, cold, warm); err != nil {
		return err
	}
	if err := b.jailPrograms(ctx, cold); err != nil {
		return err
	}
	if err := b.jailCrowd(ctx, cold, warm); err != nil {
		return err
	}
	if err := b.npmFigures(ctx, "jail", 1.1, warm, cold); err != nil {
		return err
	}
	return b.jailMemory(ctx, cold)
}

// jailCrowd measures many jails that are requested at the same moment.
func (b *bench) jailCrowd(ctx context.Context, cold, warm *server) error {
	w := &ttiCrowdRun{b: b, times: newScores(), costs: newScores()}
	all := []func() error{
		func() error { return w.sandboxes(ctx, nameJailCold, cold) },
		func() error { return w.sandboxes(ctx, nameJailWarm, warm) },
	}
	if found("bwrap") {
		all = append(all, func() error { return w.bare(ctx, nameBwrap, bubblewrap("/bin/true")) })
	}
	if err := runInTurns(b.crowdRounds(), all); err != nil {
		return err
	}
	sec := table("jail", fmt.Sprintf("%d at once, each created, used once and removed", b.crowd), "ms", w.times)
	sec.Notes = w.failed
	sec.against(nameBwrap, nameJailCold, nameJailWarm)
	sec.against(nameBwrap+allSuffix, nameJailCold+allSuffix, nameJailWarm+allSuffix)
	if sec.find(nameBwrap+allSuffix) != nil {
		sec.target(nameJailCold+allSuffix, "≤ 1.20× "+nameBwrap+allSuffix, func(r row) bool { return r.Ratio > 0 && r.Ratio <= 1.2 })
	}
	b.report.add(sec)
	return nil
}

// jailLives measures the time from the creation to a program's first output.
func (b *bench) jailLives(ctx context.Context, cold, warm *server) error {
	all := []contender{lifeBare(nameBare, []string{"/bin/echo", "ok"}, nil)}
	if found("bwrap") {
		all = append(all, lifeBare(nameBwrap, bubblewrap("/bin/echo", "ok"), nil))
	}
	pool := &poolCreator{warm}
	all = append(all, lifeSandbox(nameJailCold, cold.client), contender{nameJailWarm, pool.life})
	s, err := race(ctx, b.n, all...)
	if err != nil {
		return err
	}
	part := newScores()
	for _, name := range []string{nameBare, nameBwrap, nameJailCold, nameJailWarm} {
		for _, v := range s.by[name+first] {
			part.add(name, v)
		}
	}
	sec := table("jail", "from nothing to the first byte of `echo ok`", "ms", part)
	sec.against(nameBwrap)
	if sec.find(nameBwrap) != nil {
		sec.target(nameJailCold, "≤ 1.50× "+nameBwrap, func(r row) bool { return r.Ratio <= 1.5 })
		sec.target(nameJailWarm, "≤ 1.00× "+nameBwrap, func(r row) bool { return r.Ratio <= 1 })
	} else {
		sec.note("bwrap is not installed, so its row is missing")
	}
	b.report.add(sec)

	acquisitions := newScores()
	for _, name := range []string{namePoolCreate, partAcquire} {
		for _, v := range s.by[name] {
			acquisitions.add(name, v)
		}
	}
	sec = table("jail", "a warm sandbox is handed over", "ms", acquisitions)
	sec.target(partAcquire, "≤ 2 ms", func(r row) bool { return r.P50 <= 2 })
	sec.note("create, from the pool: the whole call through HTTP. %s: until the policy holds inside, as the server logs it.", partAcquire)
	b.report.add(sec)
	return nil
}

// partAcquire is the part of a creation in which a warm sandbox is assigned to the caller.
const partAcquire = "network and guest"

// poolCreator creates sandboxes from the warm pool.
type poolCreator struct{ *server }

// acquireLog matches the server's log entry of an acquired sandbox.
var acquireLog = regexp.MustCompile(`msg="sandbox handed over" sandbox=(\S+) link=(\S+) guest=(\S+)`)

// maxMisses is how often a sandbox may not be warm. The first requests teach the server which kind
// to keep ready.
const maxMisses = 50

// life measures one sandbox that was warm.
func (c *poolCreator) life(ctx context.Context, s *scores) error {
	for range maxMisses {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(refill):
		}
		if warm, err := c.try(ctx, s); warm || err != nil {
			return err
		}
	}
	return fmt.Errorf("none of %d sandboxes was warm", maxMisses)
}

// try measures one sandbox, and reports whether it was warm.
func (c *poolCreator) try(ctx context.Context, s *scores) (warm bool, err error) {
	var out firstByte
	began := time.Now()
	sb, err := c.client.Create(ctx, crannog.Timeout(5*time.Minute))
	if err != nil {
		return false, err
	}
	took := time.Since(began)
	cmd := sb.CommandContext(ctx, "/bin/echo", "ok")
	cmd.Stdout = &out
	err = cmd.Run()
	if err := errors.Join(err, sb.Kill(ctx)); err != nil {
		return false, err
	}
	if warm, err = c.addAcquisition(sb.ID(), s); !warm || err != nil {
		return false, err
	}
	s.addTime(nameJailWarm+first, out.at.Sub(began))
	s.addTime(namePoolCreate, took)
	return true, out.requireOutput("ok")
}

// addAcquisition adds the durations that the server logged for a warm sandbox, and reports whether
// the sandbox was warm.
func (c *poolCreator) addAcquisition(id string, s *scores) (bool, error) {
	log, err := os.ReadFile(c.logs.Name())
	if err != nil {
		return false, err
	}
	for _, m := range acquireLog.FindAllStringSubmatch(string(log), -1) {
		if m[1] != id {
			continue
		}
		link, err := time.ParseDuration(m[2])
		if err != nil {
			return false, err
		}
		guest, err := time.ParseDuration(m[3])
		if err != nil {
			return false, err
		}
		s.addTime(partAcquire, link+guest)
		return true, nil
	}
	return false, nil
}

// jailPrograms measures programs in a live jail.
func (b *bench) jailPrograms(ctx context.Context, srv *server) error {
	sb, err := srv.client.Create(ctx, crannog.Timeout(10*time.Minute))
	if err != nil {
		return err
	}
	for _, argv := range [][]string{{"true"}, {"sh", "-c", ":"}, {"python3", "-c", "pass"}} {
		all := []contender{bare(nameBare, argv...)}
		if found("bwrap") {
			all = append(all, bare(nameBwrap, bubblewrap(argv...)...))
		}
		all = append(all, byCall("in a live jail", sb, argv...))
		s, err := race(ctx, 2*b.n, all...)
		if err != nil {
			return errors.Join(err, sb.Kill(ctx))
		}
		sec := table("jail", strings.Join(argv, " ")+" in a live jail, through POST /v1/…/exec", "ms", s)
		sec.against(nameBare)
		if base := sec.find(nameBare); base != nil {
			limit := base.P50 + 2
			sec.target("in a live jail", "≤ bare + 2 ms", func(r row) bool { return r.P50 <= limit })
		}
		b.report.add(sec)
	}
	return sb.Kill(ctx)
}

// jailMemory measures the memory of idle jails.
func (b *bench) jailMemory(ctx context.Context, srv *server) (err error) {
	const sandboxes = 10
	var alive []*crannog.Sandbox
	defer func() { err = errors.Join(err, killAll(ctx, alive)) }()
	s := newScores()
	for range sandboxes {
		sb, err := srv.client.Create(ctx, crannog.Timeout(10*time.Minute))
		if err != nil {
			return err
		}
		alive = append(alive, sb)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(settleTime): // jails release the memory that only their start needed
	}
	for _, sb := range alive {
		pid, err := jailProcess(srv.state, sb.ID())
		if err != nil {
			return err
		}
		sum, err := pssOf(pid)
		if err != nil {
			return err
		}
		s.add("PSS", float64(sum.all)/1e6)
		s.add(" of it pages of program files", float64(sum.file)/1e6)
		if n, ok := charged(pid); ok {
			s.add("charged", float64(n)/1e6)
		}
	}
	sec := table("jail", fmt.Sprintf("of one idle jail, %d at once", sandboxes), "MB", s)
	sec.target("PSS", "≤ 3 MB", func(r row) bool { return r.P50 <= 3 })
	b.report.add(sec)
	return nil
}

// jailProcess returns the PID of a jail's first process.
func jailProcess(state, id string) (int, error) {
	want := setup.Arg0 + "\x00" + jail.Tag(filepath.Join(state, "jail")) + "-" + id + "\x00"
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	for _, path := range lines {
		if data, err := os.ReadFile(path); err == nil && string(data) == want {
			var pid int
			_, err := fmt.Sscanf(path, "/proc/%d/cmdline", &pid)
			return pid, err
		}
	}
	return 0, fmt.Errorf("no process of sandbox %s", id)
}
