package jail_test

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/audit/events"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/jail"
	"github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/gen/processpb/processpbconnect"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// record is a file of events and what was read from it.
type record struct {
	file   *os.File
	reader *events.Reader
	read   []events.Event
}

func newRecord(t *testing.T) *record {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "events"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &record{file: f, reader: events.NewReader(f, 0, 0)}
}

// next returns the new events.
func (r *record) next(t *testing.T) []events.Event {
	t.Helper()
	from := len(r.read)
	for {
		e, err := r.reader.Next()
		if errors.Is(err, io.EOF) {
			return r.read[from:]
		}
		if err != nil {
			t.Fatal(err)
		}
		r.read = append(r.read, e)
	}
}

func count(list []events.Event, is func(events.Event) bool) (n int) {
	for _, e := range list {
		if is(e) {
			n++
		}
	}
	return n
}

func survey(t *testing.T, e engine.Engine, id string) {
	t.Helper()
	o, ok := e.(engine.Observer)
	if !ok {
		t.Fatal("the engine is no observer")
	}
	if err := o.Survey(t.Context(), id); err != nil {
		t.Fatal(err)
	}
}

// Programs run although the record is full. Each event without room is counted in a gap.
func TestEventsWithoutRoomAreCounted(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	e, r := open(false)(t, t.TempDir()), newRecord(t)
	spec := observedSpec(t, "floodedsandbox", r)
	spec.EventBytes = 64 << 10
	shell := start(t, e, spec)
	survey(t, e, spec.ID)
	r.next(t)
	const n = 600
	shell(t, "i=0; while [ $i -lt 600 ]; do /bin/true; i=$((i+1)); done")
	full := r.next(t)
	if err := events.Free(r.file, r.reader.Offset()); err != nil {
		t.Fatal(err)
	}
	survey(t, e, spec.ID)
	all := append(slices.Clone(full), r.next(t)...)
	recorded := count(all, func(e events.Event) bool { return e.Kind == events.Exec || e.Kind == events.Exit })
	lost := uint64(0)
	for _, one := range all {
		if one.Kind == events.Gap && one.Reason == "flood" {
			lost += one.Lost
		}
	}
	// Each program has an event for its start and its end, and so has the shell.
	if lost == 0 || recorded == 0 || uint64(recorded)+lost != 2*n+2 {
		t.Errorf("%d events are recorded and %d are lost, want %d together", recorded, lost, 2*n+2)
	}
	shell(t, "/bin/true afterwards")
	survey(t, e, spec.ID)
	if count(r.next(t), func(e events.Event) bool { return slices.Contains(e.Argv, "afterwards") && e.Kind == events.Exec }) != 1 {
		t.Error("nothing is recorded after the flood")
	}
}

// A server that finds an observed sandbox observes it again, and records that it did not before.
func TestObservationContinuesAfterARestart(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	dir, r := t.TempDir(), newRecord(t)
	e := open(false)(t, dir)
	spec := observedSpec(t, "adoptedsandbox", r)
	shell := start(t, e, spec)
	shell(t, "/bin/true before; echo a > /tmp/before")
	survey(t, e, spec.ID)
	jail.Abandon(e, spec.ID)
	shell(t, "/bin/true unseen; echo b > /tmp/unseen")
	before := r.next(t)
	has := func(list []events.Event, word string) bool {
		return slices.ContainsFunc(list, func(e events.Event) bool { return e.Kind == events.Exec && slices.Contains(e.Argv, word) })
	}
	if !has(before, "before") || has(before, "unseen") {
		t.Fatalf("control: the events are %+v", before)
	}
	again := open(false)(t, dir)
	survey(t, again, spec.ID)
	shell(t, "/bin/true after")
	survey(t, again, spec.ID)
	after := r.next(t)
	gap := slices.ContainsFunc(after, func(e events.Event) bool { return e.Kind == events.Gap && e.Reason == "not_watched" })
	file := slices.ContainsFunc(after, func(e events.Event) bool { return e.Path == "/tmp/unseen" && e.Op == events.Created })
	if !gap || !file || !has(after, "after") {
		t.Errorf("gap %v, file %v, program %v: %+v", gap, file, has(after, "after"), after)
	}
	if err := again.Remove(context.Background(), spec.ID); err != nil {
		t.Error(err)
	}
}

// What the engine declares as unseen is not seen, and the same actions without the trick are.
func TestUnseenIsUnseen(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python)
	e, r := open(false)(t, t.TempDir()), newRecord(t)
	if text := strings.Join(e.Info().Unseen, "\n"); !strings.Contains(text, "ld.so") || !strings.Contains(text, "memory maps") {
		t.Fatalf("the declaration is %q", text)
	}
	spec := observedSpec(t, "unseensandbox", r)
	shell := start(t, e, spec)
	survey(t, e, spec.ID)
	r.next(t)
	shell(t, `/bin/true direct; $(ls /lib64/ld-linux-*.so* /lib/ld-linux-*.so* 2>/dev/null | head -1) /bin/true loaded; cd /tmp; echo gone > gone; rm gone; echo kept > kept
python3 -c 'import os
f = os.memfd_create("hidden"); os.write(f, open("/bin/true", "rb").read()); os.execve(f, ["memory"], {})'`)
	survey(t, e, spec.ID)
	list := r.next(t)
	programs := func(word, program string) int {
		return count(list, func(e events.Event) bool {
			return e.Kind == events.Exec && slices.Contains(e.Argv, word) && strings.Contains(e.Program, program)
		})
	}
	if programs("direct", "/bin/true") != 1 {
		t.Errorf("control: the program is not recorded: %+v", list)
	}
	if programs("loaded", "/bin/true") != 0 || programs("loaded", "ld-linux") != 1 {
		t.Error("a program that ld.so loads is recorded under its own name, which the declaration denies")
	}
	if programs("memory", "/dev/fd/") != 1 {
		t.Error("a program in memory is not recorded")
	}
	paths := func(path string) int { return count(list, func(e events.Event) bool { return e.Path == path }) }
	if paths("/tmp/kept") != 1 || paths("/tmp/gone") != 0 {
		t.Errorf("the file that stays has %d events, and the other %d", paths("/tmp/kept"), paths("/tmp/gone"))
	}
}

// Without the kernel's ability, the engine is no observer, and says why.
func TestWithoutEventsTheEngineSaysSo(t *testing.T) {
	e, err := jail.New(jail.Options{StateDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(t.Output(), nil)), NoEvents: true})
	if err != nil {
		t.Fatal(err)
	}
	info := e.Info()
	if _, observes := e.(engine.Observer); observes || slices.Contains(info.Capabilities, engine.CanObserve) {
		t.Error("the engine declares to observe")
	}
	if len(info.Unseen) != 1 || !strings.Contains(info.Unseen[0], "not recorded") || !slices.Contains(info.Notes, info.Unseen[0]) {
		t.Errorf("the engine says %q and %q", info.Unseen, info.Notes)
	}
	spec := engine.Spec{ID: "observed", Image: image(t), Events: newRecord(t).file}
	if err := e.Create(t.Context(), spec); err == nil {
		t.Error("a sandbox with events was created")
		_ = e.Remove(context.Background(), spec.ID)
	}
}

// observedSpec describes an observed sandbox.
func observedSpec(t *testing.T, id string, r *record) engine.Spec {
	t.Helper()
	return engine.Spec{ID: id, Image: image(t), Events: r.file, Boot: engine.Boot{
		Config: []byte(`{"sandbox_id":"` + id + `","hostname":"box","default_user":"user","control_token":"x","access_token":"y"}`),
	}}
}

// start creates a sandbox and returns a function that runs a shell command in it.
func start(t *testing.T, e engine.Engine, spec engine.Spec) (shell func(t *testing.T, line string)) {
	t.Helper()
	if err := e.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Remove(context.Background(), spec.ID); err != nil {
			t.Error(err)
		}
	})
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return e.Dial(ctx, spec.ID, guestboot.Port)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	processes := processpbconnect.NewProcessClient(&http.Client{Transport: transport}, "http://guest", connect.WithProtoJSON())
	return func(t *testing.T, line string) {
		t.Helper()
		stdin := false
		req := connect.NewRequest(&processpb.StartRequest{Process: &processpb.ProcessConfig{Cmd: "/bin/sh", Args: []string{"-c", line}}, Stdin: &stdin})
		req.Header().Set("X-Access-Token", "y")
		req.Header().Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("user:")))
		stream, err := processes.Start(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		for stream.Receive() {
			if end := stream.Msg().GetEvent().GetEnd(); end != nil {
				if end.GetExitCode() != 0 {
					t.Fatalf("%s: %s", line, end.GetStatus())
				}
				return
			}
		}
		t.Fatalf("%s: no end: %v", line, stream.Err())
	}
}
