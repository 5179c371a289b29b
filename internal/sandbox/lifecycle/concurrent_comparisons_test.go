package lifecycle_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
)

// TestComparisonsTakeTurns checks that concurrent comparisons wait for each other, because a
// sandbox can make the server use much memory for each. Callers whose context ends get an error.
func TestComparisonsTakeTurns(t *testing.T) {
	y := newWorkspaceRig(t, sandbox.Access{})
	entered, proceed := make(chan struct{}), make(chan struct{})
	files := y.files
	y.files = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == guest.PathTree {
			select {
			case entered <- struct{}{}:
			case <-proceed:
			}
			<-proceed
		}
		files.ServeHTTP(w, r)
	})
	const callers = 5
	ended := make(chan error, callers)
	for range callers {
		go func() {
			_, err := y.Changes().Changes(context.WithoutCancel(t.Context()), local, y.sb.ID, sandbox.ChangesRequest{})
			ended <- err
		}()
	}
	<-entered
	<-entered
	select {
	case <-entered:
		t.Error("three comparisons run at once")
	case <-time.After(200 * time.Millisecond):
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := y.Changes().Changes(ctx, local, y.sb.ID, sandbox.ChangesRequest{}); fault.CodeOf(err) != "timeout" {
		t.Errorf("comparison with a short deadline: got error %v, want timeout", err)
	}
	close(proceed)
	for range callers {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	// A failed comparison releases its place too, and waiting for an approval does not occupy it.
	y.files = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for range 3 {
		_, err := y.Changes().Changes(t.Context(), local, y.sb.ID, sandbox.ChangesRequest{})
		if err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
	for _, dir := range []string{"/", "/workspace/x", "/nowhere"} {
		for range 3 {
			if _, err := y.Changes().Changes(t.Context(), local, y.sb.ID, sandbox.ChangesRequest{Dir: dir}); err == nil {
				t.Errorf("%s was compared", dir)
			}
		}
	}
}
