package fake_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/enginetest"
	"github.com/crannog/crannog/internal/engine/fake"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/gen/processpb/processpbconnect"
	"github.com/crannog/crannog/internal/guest/guestboot"
)

const (
	noPrograms = "the fake runs no programs: its guest here understands echo and cat only"
	noWall     = "the fake has no boundary, and says so"
	noLink     = "the fake's boxes are on the host's network"
	noLimits   = "the fake enforces no limits, and says so"
)

func open(t testing.TB, dir string) engine.Engine {
	t.Helper()
	e, err := fake.New(fake.Options{Dir: dir + "/run", Guest: shellGuest})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// The fake's own time, so that a measurement of a service above it can subtract the
// engine's share.
func BenchmarkConformance(b *testing.B) {
	enginetest.Benchmarks(b, enginetest.Config{Open: open, Image: engine.ViewOf(b.TempDir(), "")})
}

func TestConformance(t *testing.T) {
	enginetest.Run(t, enginetest.Config{
		Open: open, Image: engine.ViewOf(t.TempDir(), ""),
		Waive: map[string]string{
			"bound/F24-exactly-what-is-open-and-mapped":               noPrograms,
			"bound/F24-goes-on-with-copies-of-what-changed":           noPrograms,
			"bound/F24-what-was-moved-is-not-known":                   noPrograms,
			"bound/F24-a-state-that-is-bound-goes-on":                 "the fake's states refer to no files of the host",
			"exec/streams-and-exit-code":                              noPrograms,
			"exec/runs-as-the-user":                                   noPrograms,
			"exec/root-on-request":                                    noPrograms,
			"exec/writable-places":                                    noPrograms,
			"exec/extended-attributes":                                noPrograms,
			"exec/thousand-orphans-are-reaped":                        noPrograms,
			"exec/descriptors-are-only-stdio":                         noPrograms,
			"exec/signals-are-as-after-a-login":                       noPrograms,
			"exec/large-output-without-newline-arrives":               noPrograms,
			"exec/large-input-arrives":                                noPrograms,
			"limits/memory-ends-the-box-and-says-so":                  noLimits,
			"limits/programs-see-the-memory-limit":                    noLimits,
			"limits/disk-is-full-at-the-limit":                        noLimits,
			"limits/files-are-bounded":                                noLimits,
			"limits/processes-are-bounded":                            noLimits,
			"limits/cpu-is-bounded":                                   noLimits,
			"limits/usage-grows":                                      noPrograms,
			"changes/what-comes-out-is-what-is-inside":                noPrograms,
			"changes/a-forged-time-hides-nothing":                     noPrograms,
			"changes/a-racing-program-shows-nothing-else":             noPrograms,
			"boundary/probes-are-refused":                             noWall,
			"boundary/host-files-are-absent":                          noWall,
			"boundary/host-files-do-not-change":                       noWall,
			"boundary/host-state-does-not-change":                     noWall,
			"boundary/host-identity-is-not-shown":                     noWall,
			"boundary/host-secrets-are-absent":                        noWall,
			"boundary/workspace-is-copy-on-write":                     noWall,
			"boundary/workspace-link-leads-nowhere":                   noWall,
			"boundary/host-loopback":                                  noWall,
			"boundary/host-abstract-socket":                           noWall,
			"boundary/only-loopback":                                  noWall,
			"boundary/host-processes-are-invisible":                   noWall,
			"boundary/boxes-do-not-see-each-other":                    noWall,
			"boundary/set-id-gains-nothing":                           noWall,
			"boundary/kill-all-leaves-the-guest":                      noWall,
			"link/reaches-its-peer-and-nothing-else":                  noLink,
			"link/names-are-asked-of-the-peer":                        noLink,
			"link/without-one-the-network-is-unreachable":             noLink,
			"link/raw-packets-are-refused":                            noLink,
			"link/there-is-no-ipv6":                                   noLink,
			"link/its-end-is-seen-inside":                             noLink,
			"link/ends-with-the-box":                                  noLink,
			"link/cycles-leave-nothing":                               noLink,
			"state/memory-files-and-listeners-go-on":                  noPrograms,
			"state/a-copy-is-saved-too":                               noPrograms,
			"state/a-removed-one-goes-on-under-its-id":                noPrograms,
			"state/replaces-in-place":                                 noPrograms,
			"state/goes-on-if-it-cannot-be-replaced":                  noPrograms,
			"state/truncated-is-refused":                              noPrograms,
			"state/another-process-is-in-the-way":                     noPrograms,
			"state/replaced-by-another-process-lives-on":              noPrograms,
			"state/a-taken-id-is-refused":                             noPrograms,
			"state/limits-hold-in-a-copy":                             noLimits,
			"state/a-copys-memory-limit-is-its-own":                   noLimits,
			"state/a-copy-has-a-group-of-its-own":                     noLimits,
			"state/covers-hold-in-a-copy":                             noWall,
			"state/files-are-archived":                                noPrograms,
			"state/an-end-while-it-is-saved-is-told":                  noPrograms,
			"limits/closed-connections-are-forgotten":                 noPrograms,
			"state/nothing-runs-while-files-are-extracted":            noPrograms,
			"state/large-files-cost-no-box":                           "it bounds no memory",
			"record/limits-that-are-met-are-seen":                     noPrograms,
			"record/bounds-of-a-programs-own-are-no-limits":           noPrograms,
			"record/each-program-is-seen-once":                        noPrograms,
			"record/names-of-variables-and-no-values":                 noPrograms,
			"record/ends-have-codes-and-signals":                      noPrograms,
			"record/orphans-belong-to-their-command":                  noPrograms,
			"record/long-arguments-are-cut":                           noPrograms,
			"record/a-full-file-refuses-programs-until-it-is-freed":   noPrograms,
			"record/what-cannot-be-observed-is-refused":               noPrograms,
			"record/each-file-has-its-size-and-sum":                   noPrograms,
			"record/only-what-changed-is-told":                        noPrograms,
			"record/names-are-real-paths":                             noPrograms,
			"record/what-is-held-open-is-looked-at-again":             noPrograms,
			"record/a-file-that-had-no-name":                          noPrograms,
			"record/a-command-that-ends-is-looked-after":              noPrograms,
			"record/restored-boxes-are-watched-from-the-start":        noPrograms,
			"record/continues-with-programs-that-were-not-waited-for": noPrograms,
			"record/a-spare-kernel-is-watched-when-it-is-used":        noPrograms,
			"record/replaced-boxes-go-on-in-the-same-file":            noPrograms,
			"record/outlives-the-process-that-asked-for-it":           noPrograms,
			"record/removal-leaves-no-descriptor":                     noPrograms,
			"record/nothing-inside-stops-it":                          noPrograms,
			"record/the-end-of-the-guest-hides-nothing":               noPrograms,
			"record/a-race-hides-no-name":                             noPrograms,
			"record/calls-answer-as-in-a-box-without-a-watcher":       noPrograms,
			"memory/zeros-over-a-file-stay-zeros":                     noPrograms,
			"memory/is-the-same-byte-by-byte":                         noPrograms,
			"copies/streams-of-the-source-go-on":                      noPrograms,
			"copies/a-spare-kernel-takes-the-name-of-a-new-box":       noPrograms,
			"restart/a-box-that-was-made-again-is-found":              noPrograms,
			"copies/are-not-each-other":                               noPrograms,
			"copies/only-the-guest-may-become-another":                noPrograms,
			"copies/know-the-time":                                    noPrograms,
			"copies/copying-cuts-no-stream-of-the-source":             noPrograms,
			"copies/spare-kernels-are-used-and-dropped":               noPrograms,
			"copies/spare-kernels-of-two-kinds":                       noPrograms,
			"copies/a-full-disk-costs-nothing":                        noPrograms,
			"copies/links-are-their-own":                              noLink,
			"copies/no-link-comes-with-the-memory":                    noLink,
			"copies/a-link-is-replaced-with-its-box":                  noLink,
			"cover/mounts-are-shown-in-their-places":                  noWall,
			"cover/hidden-is-empty":                                   noWall,
			"cover/absent-is-not-there":                               noWall,
			"cover/read-only-is-not-changed":                          noWall,
			"cover/read-only-must-hold":                               noWall,
			"namespaces/bubblewrap":                                   noWall,
			"namespaces/of-ones-own":                                  noWall,
			"owners/what-is-covered-can-be-read":                      noWall,
			"owners/hold-in-a-copy":                                   noWall,
			"owners/permissions-hold-inside":                          noWall,
			"owners/the-workspace-is-the-users":                       noWall,
			"cover/hiding-does-not-follow-links-out":                  noWall,
		},
	})
}

// shell is a process service that starts no process: a rule of the suite that
// is not waived must not do to this machine what it means to do to a box.
type shell struct {
	processpbconnect.UnimplementedProcessHandler

	mu    sync.Mutex
	files map[string]string
}

func shellGuest(spec engine.Spec) (map[int]http.Handler, func(), error) {
	path, handler := processpbconnect.NewProcessHandler(&shell{files: map[string]string{}})
	mux := http.NewServeMux()
	mux.Handle(path, handler)
	return map[int]http.Handler{guestboot.Port: fake.Control(spec, mux)}, nil, nil
}

// Start carries out /bin/sh -c with echo and cat, joined by &&.
func (s *shell) Start(_ context.Context, req *connect.Request[processpb.StartRequest], out *connect.ServerStream[processpb.StartResponse]) error {
	argv := append([]string{req.Msg.GetProcess().GetCmd()}, req.Msg.GetProcess().GetArgs()...)
	if len(argv) != 3 || argv[0] != "/bin/sh" || argv[1] != "-c" {
		return connect.NewError(connect.CodeUnimplemented, fmt.Errorf("not a shell line: %q", argv))
	}
	var printed strings.Builder
	for line := range strings.SplitSeq(argv[2], "&&") {
		text, err := s.command(strings.Fields(line))
		if err != nil {
			return connect.NewError(connect.CodeUnimplemented, err)
		}
		printed.WriteString(text)
	}
	data := &processpb.ProcessEvent_DataEvent{Output: &processpb.ProcessEvent_DataEvent_Stdout{Stdout: []byte(printed.String())}}
	for _, event := range []*processpb.ProcessEvent{
		{Event: &processpb.ProcessEvent_Start{Start: &processpb.ProcessEvent_StartEvent{Pid: 2}}},
		{Event: &processpb.ProcessEvent_Data{Data: data}},
		{Event: &processpb.ProcessEvent_End{End: &processpb.ProcessEvent_EndEvent{Exited: true, Status: "exit status 0"}}},
	} {
		if err := out.Send(&processpb.StartResponse{Event: event}); err != nil {
			return err
		}
	}
	return nil
}

func (s *shell) command(words []string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(words)
	switch {
	case n > 3 && words[0] == "echo" && words[n-2] == ">":
		s.files[words[n-1]] = strings.Join(words[1:n-2], " ") + "\n"
		return "", nil
	case n > 1 && words[0] == "echo" && !strings.ContainsAny(strings.Join(words, ""), "<>|;$`("):
		return strings.Join(words[1:], " ") + "\n", nil
	case n == 2 && words[0] == "cat":
		return s.files[words[1]], nil
	}
	return "", fmt.Errorf("no such command: %q", words)
}

// A step that fails leaves nothing, and a removal that failed can be retried.
func TestFaults(t *testing.T) {
	broken := errors.New("broken on purpose")
	var at fake.Step
	dir := t.TempDir()
	e, err := fake.New(fake.Options{Dir: dir, Fault: func(step fake.Step, _ string) error {
		if step == at {
			return broken
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	spec := engine.Spec{ID: "box", GuestConfig: []byte(`{"control_token":"c"}`)}
	for _, at = range fake.Steps[:4] {
		if err := e.Create(t.Context(), spec); !errors.Is(err, broken) {
			t.Errorf("%s: %v", at, err)
		}
		if list, err := e.List(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("%s left %v, %v", at, list, err)
		}
	}
	for _, step := range fake.Steps[4:] {
		at = ""
		if err := e.Create(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		at = step
		if err := e.Remove(t.Context(), "box"); !errors.Is(err, broken) {
			t.Errorf("%s: %v", step, err)
		}
		at = ""
		if err := e.Remove(t.Context(), "box"); err != nil {
			t.Errorf("after %s: %v", step, err)
		}
		if list, err := e.List(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("%s left %v, %v", step, list, err)
		}
	}
}

// What a dead process left is listed, has ended, and can be removed.
func TestLeftover(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/box", 0o700); err != nil {
		t.Fatal(err)
	}
	e, err := fake.New(fake.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	list, err := e.List(t.Context())
	if err != nil || len(list) != 1 || list[0].ID != "box" || list[0].State != engine.Stopped {
		t.Errorf("list %v, %v", list, err)
	}
	if exit, err := e.Wait(t.Context(), "box"); err != nil || exit.Reason != engine.ReasonCrashed {
		t.Errorf("wait %+v, %v", exit, err)
	}
	if err := e.Create(t.Context(), engine.Spec{ID: "box"}); fault.KindOf(err) != fault.Exists {
		t.Errorf("create over it: %v", err)
	}
	if err := e.Remove(t.Context(), "box"); err != nil {
		t.Error(err)
	}
	if _, err := e.Wait(t.Context(), "box"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("wait after removal: %v", err)
	}
}
