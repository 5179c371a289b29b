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

// Many comparisons at once wait for each other, because each may make the server hold as much
// memory as a sandbox can cause. Callers that leave get an error.
func TestComparisonsTakeTurns(t *testing.T) {
	y := newWorkspaceRig(t, sandbox.Access{})
	come, goOn := make(chan struct{}), make(chan struct{})
	files := y.files
	y.files = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == guest.PathTree {
			select {
			case come <- struct{}{}:
			case <-goOn:
			}
			<-goOn
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
	<-come
	<-come
	select {
	case <-come:
		t.Error("three boxes are asked at once")
	case <-time.After(200 * time.Millisecond):
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := y.Changes().Changes(ctx, local, y.sb.ID, sandbox.ChangesRequest{}); fault.CodeOf(err) != "timeout" {
		t.Errorf("one that leaves: %v", err)
	}
	close(goOn)
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
