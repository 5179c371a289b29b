package lifecycle

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

func TestCloseCancelsOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := 0
		o := newOperations(func() { ended++ })
		ctx, done, err := o.begin(t.Context(), "a")
		if err != nil || !o.busy() || !o.running("a") || o.running("b") {
			t.Fatalf("not under way: %v", err)
		}
		closed := make(chan struct{})
		go func() { o.close(); close(closed) }()
		<-ctx.Done()
		if code := fault.CodeOf(context.Cause(ctx)); code != codeShuttingDown {
			t.Errorf("canceled with %q", code)
		}
		synctest.Wait()
		select {
		case <-closed:
			t.Error("closed before the operation was over")
		default:
		}
		done()
		<-closed
		if ended != 1 || o.busy() {
			t.Errorf("%d ends, busy %t", ended, o.busy())
		}
		if _, _, err := o.begin(t.Context(), "a"); fault.CodeOf(err) != codeShuttingDown {
			t.Errorf("begun after the close: %v", err)
		}
	})
}

// A removal has priority over all other operations on a sandbox.
func TestARemovalPrecedes(t *testing.T) {
	o := newOperations(func() {})
	ctx, done, err := o.begin(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	removed := o.precede("a")
	again := o.precede("a")
	if code := fault.CodeOf(context.Cause(ctx)); code != sandbox.CodeRemoved {
		t.Errorf("canceled with %q", code)
	}
	done()
	removed()
	if _, _, err := o.begin(t.Context(), "a"); fault.CodeOf(err) != sandbox.CodeRemoved {
		t.Errorf("begun during the second removal: %v", err)
	}
	again()
	_, done, err = o.begin(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	done()
}

func TestWhatIsOwed(t *testing.T) {
	o := newOperations(func() {})
	pausing := sandbox.Row{Sandbox: sandbox.Sandbox{ID: "a", State: sandbox.Pausing}}
	here := process{alive: func(sandbox.Process) bool { return true }}
	for _, step := range []struct {
		err       error
		endUnsent bool
	}{
		{fault.New(fault.Exhausted, sandbox.CodeTooMany, "too many"), false}, // the row is unchanged
		{errors.New("disk"), true},
		{fault.New(fault.Exhausted, sandbox.CodeTooManyPaused, "too many"), true},
		{nil, false},
	} {
		o.moved("a", step.err)
		if o.owes("a") != step.endUnsent || o.stranded(here, pausing) != step.endUnsent {
			t.Errorf("after %v: owed %t, stranded %t", step.err, o.owes("a"), o.stranded(here, pausing))
		}
	}
	o.owe("a")
	running := pausing
	running.State = sandbox.Running
	if !o.stranded(here, pausing) || o.stranded(here, running) {
		t.Error("only a transitional state can be stranded")
	}
}

// Requests that waited while another failed share its error; a request whose caller went away says
// nothing about the others.
func TestFailuresAreShared(t *testing.T) {
	o := newOperations(func() {})
	before := time.Now().Add(-time.Hour)
	failed := errors.New("no memory")
	o.resumed("a", failed)
	if err := o.failedSince("a", before); !errors.Is(err, failed) {
		t.Errorf("not shared: %v", err)
	}
	if err := o.failedSince("a", time.Now().Add(time.Hour)); err != nil {
		t.Errorf("a later request has %v", err)
	}
	o.resumed("a", fault.New(fault.Canceled, "canceled", "gone"))
	if err := o.failedSince("a", before); err != nil {
		t.Errorf("a canceled request is shared: %v", err)
	}
	o.resumed("a", failed)
	o.forget("a")
	if err := o.failedSince("a", before); err != nil {
		t.Errorf("remembered: %v", err)
	}
}
