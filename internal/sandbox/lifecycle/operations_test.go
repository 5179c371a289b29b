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
			t.Fatalf("the operation is not in progress: %v", err)
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
func TestRemovalHasPriority(t *testing.T) {
	o := newOperations(func() {})
	ctx, done, err := o.begin(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	removed := o.cancelForRemoval("a")
	again := o.cancelForRemoval("a")
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

func TestUnwrittenSandboxesAreStranded(t *testing.T) {
	o := newOperations(func() {})
	pausing := sandbox.Row{Sandbox: sandbox.Sandbox{ID: "a", State: sandbox.Pausing}}
	self := process{alive: func(sandbox.Process) bool { return true }}
	for _, step := range []struct {
		err       error
		unwritten bool
	}{
		{fault.New(fault.Exhausted, sandbox.CodeTooMany, "too many"), false}, // the row is unchanged
		{errors.New("disk"), true},
		{fault.New(fault.Exhausted, sandbox.CodeTooManyPaused, "too many"), true},
		{nil, false},
	} {
		o.recordMove("a", step.err)
		if o.isUnwritten("a") != step.unwritten || o.isStranded(self, pausing) != step.unwritten {
			t.Errorf("after %v: unwritten %t, stranded %t", step.err, o.isUnwritten("a"), o.isStranded(self, pausing))
		}
	}
	o.markUnwritten("a")
	running := pausing
	running.State = sandbox.Running
	if !o.isStranded(self, pausing) || o.isStranded(self, running) {
		t.Error("only a transitional state can be stranded")
	}
}

// TestFailedResumeIsShared checks that requests which waited while another one failed share its
// error. The error of a canceled request is not shared.
func TestFailedResumeIsShared(t *testing.T) {
	o := newOperations(func() {})
	before := time.Now().Add(-time.Hour)
	failed := errors.New("no memory")
	o.recordResume("a", failed)
	if err := o.failedSince("a", before); !errors.Is(err, failed) {
		t.Errorf("the failure is not shared: %v", err)
	}
	if err := o.failedSince("a", time.Now().Add(time.Hour)); err != nil {
		t.Errorf("a later request has %v", err)
	}
	o.recordResume("a", fault.New(fault.Canceled, "canceled", "gone"))
	if err := o.failedSince("a", before); err != nil {
		t.Errorf("a canceled request is shared: %v", err)
	}
	o.recordResume("a", failed)
	o.forget("a")
	if err := o.failedSince("a", before); err != nil {
		t.Errorf("the failure of a removed sandbox is shared: %v", err)
	}
}
