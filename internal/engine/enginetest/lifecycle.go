package enginetest

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

var lifecycleRules = []rule{
	{"lifecycle/probe-passes-here", func(t testing.TB, c *Config) {
		findings := c.Open(t, t.TempDir()).Probe(t.Context())
		if len(findings) == 0 {
			t.Error("Probe returned no findings")
		}
		for _, f := range findings {
			if f.Check == "" || f.Detail == "" || !slices.Contains([]engine.Result{engine.ResultOK, engine.ResultWarn}, f.Result) {
				t.Errorf("got the finding %+v, want a passed check with a detail", f)
			}
		}
	}},
	{"lifecycle/create-is-ready", func(t testing.TB, c *Config) {
		b := c.start(t, c.Open(t, t.TempDir()))
		b.want(t, "echo hello", "hello")
	}},
	{"lifecycle/used-id-is-exists", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b := c.start(t, e)
		if err := e.Create(t.Context(), c.spec(b.id)); fault.KindOf(err) != fault.Exists {
			t.Fatalf("create with a used ID: got %v, want exists", err)
		}
		b.want(t, "echo still here", "still here")
	}},
	{"lifecycle/bad-id-is-invalid", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		for _, id := range []string{"", "..", "a/b", "../../etc", "UPPER", "a\x00b", "ünï", "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddx"} {
			if err := e.Create(t.Context(), c.spec(id)); fault.KindOf(err) != fault.Invalid {
				t.Errorf("create %q: got %v, want invalid", id, err)
			}
			if err := e.Remove(t.Context(), id); err != nil {
				t.Errorf("remove %q: %v", id, err)
			}
		}
	}},
	{"lifecycle/remove-is-idempotent", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b := c.start(t, e)
		for range 3 {
			if err := e.Remove(t.Context(), b.id); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := e.Wait(hosttest.Context(t), b.id); fault.KindOf(err) != fault.NotFound {
			t.Errorf("wait after remove: got %v, want not found", err)
		}
		if _, err := e.Dial(t.Context(), b.id, guestboot.Port); fault.KindOf(err) != fault.NotFound {
			t.Errorf("dial after remove: got %v, want not found", err)
		}
	}},
	{"lifecycle/list-has-every-sandbox", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b := c.start(t, e)
		isOurs := func(s engine.Status) bool { return s.ID == b.id && s.State == engine.Running }
		if list, err := e.List(t.Context()); err != nil || !slices.ContainsFunc(list, isOurs) {
			t.Fatalf("list: %v %v", list, err)
		}
		if err := e.Remove(t.Context(), b.id); err != nil {
			t.Fatal(err)
		}
		if list, err := e.List(t.Context()); err != nil || len(list) != 0 {
			t.Fatalf("list after remove: %v %v", list, err)
		}
	}},
	{"lifecycle/wait-returns-after-remove", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b := c.start(t, e)
		exits := make(chan engine.Exit, 3)
		for range 3 {
			go func() {
				exit, err := waitFor(context.Background(), e, b.id)
				if err != nil {
					exit.Reason = engine.Reason(err.Error())
				}
				exits <- exit
			}()
		}
		stillWaits(t, exits, 3)
		if err := e.Remove(t.Context(), b.id); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if exit := <-exits; exit.Reason != engine.ReasonKilled {
				t.Errorf("Wait returned %+v, want killed", exit)
			}
		}
	}},
	{"lifecycle/wait-honours-its-context", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b := c.start(t, e)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := e.Wait(ctx, b.id); !errors.Is(err, context.Canceled) {
			t.Fatalf("Wait returned %v, want canceled", err)
		}
	}},
	{"lifecycle/canceled-create-leaves-nothing", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		for _, timeout := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond} {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			spec := c.spec(newID())
			err := e.Create(ctx, spec)
			cancel()
			if err == nil { // a fast host may finish the creation first; then the sandbox exists
				if err := e.Remove(t.Context(), spec.ID); err != nil {
					t.Error(err)
				}
			}
			if list, err := e.List(t.Context()); err != nil || len(list) != 0 {
				t.Errorf("sandboxes left after a creation canceled after %v: %v %v", timeout, list, err)
			}
		}
	}},
	{"lifecycle/bad-root-leaves-nothing", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		spec := c.spec(newID())
		spec.Image = engine.ViewOf("/nowhere/at/all", spec.Image.Guest)
		if err := e.Create(t.Context(), spec); err == nil {
			t.Error("a sandbox started from a root that does not exist")
		}
		if list, err := e.List(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("sandboxes left behind: %v %v", list, err)
		}
	}},
	{"lifecycle/undeclared-egress-is-refused", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		end, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer end.Close()
		declared := e.Info().Egress
		for _, kind := range []engine.EgressKind{engine.EgressNone, engine.EgressPackets, engine.EgressTap, engine.EgressEthernet, engine.EgressProxy, "unknown"} {
			if slices.Contains(declared, kind) && kind != engine.EgressNone {
				continue
			}
			spec := c.spec(newID())
			spec.Egress = engine.Egress{Kind: kind, End: end} // invalid even for EgressNone, which has no end
			if err := e.Create(t.Context(), spec); err == nil {
				t.Errorf("a sandbox started with an egress of the kind %s, although only %v are declared", kind, declared)
				remove(t, e, spec.ID)
			}
		}
		if list, err := e.List(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("sandboxes left behind: %v %v", list, err)
		}
	}},
	{"lifecycle/dial-distinguishes-closed-port-and-unknown-sandbox", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b := c.start(t, e)
		if _, err := e.Dial(t.Context(), b.id, 4242); fault.CodeOf(err) != "port_closed" {
			t.Errorf("dial a closed port: got %v, want port_closed", err)
		}
		if _, err := e.Dial(t.Context(), "nosuchsandbox", guestboot.Port); fault.KindOf(err) != fault.NotFound {
			t.Errorf("dial an unknown sandbox: got %v, want not found", err)
		}
		for _, port := range []int{0, -1, 65536} {
			if _, err := e.Dial(t.Context(), b.id, port); fault.KindOf(err) != fault.Invalid {
				t.Errorf("dial port %d: got %v, want invalid", port, err)
			}
		}
	}},
	{"lifecycle/closed-stream-ends-on-both-sides", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		b := c.start(t, e)
		conn, err := e.Dial(t.Context(), b.id, guestboot.Port)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := e.Remove(t.Context(), b.id); err != nil {
			t.Fatal(err)
		}
		conn.SetReadDeadline(hosttest.Deadline())
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read on a removed sandbox: %v, want %v or a reset", err, io.EOF)
		}
	}},
	{"lifecycle/many-at-once", func(t testing.TB, c *Config) {
		e := c.Open(t, t.TempDir())
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				spec := c.spec(newID())
				if err := e.Create(t.Context(), spec); err != nil {
					t.Error(err)
					return
				}
				if err := e.Remove(t.Context(), spec.ID); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if list, err := e.List(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("sandboxes left behind: %v %v", list, err)
		}
	}},
}
