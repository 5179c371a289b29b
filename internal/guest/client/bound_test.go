package client

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

// silentGuest is a guest that accepts requests and sends nothing.
type silentGuest struct{}

func (silentGuest) Do(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// A guest that root inside has stopped cannot end the command at its limit; its caller gets an
// error.
func TestSilentGuestIsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		_, err := New(silentGuest{}, "http://guest", nil).Start(t.Context(), Spec{Cmd: "true", Timeout: time.Second})
		if fault.CodeOf(err) != "guest_silent" || fault.KindOf(err) != fault.Timeout {
			t.Errorf("Start on a silent guest: got %v, want guest_silent", err)
		}
		if took := time.Since(started); took < time.Second || took > time.Minute {
			t.Errorf("Start failed after %v, want about the time limit and guestGrace", took)
		}
	})
}

// A caller whose context ends does not get guest_silent, and the deadline of the context is not the
// command's time limit.
func TestCallerDeadlineIsNotTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, ok := withoutDeadline(ctx).Deadline(); ok {
			t.Error("the context has a deadline")
		}
		_, err := New(silentGuest{}, "http://guest", nil).Start(ctx, Spec{Cmd: "true", Timeout: time.Hour})
		if err == nil || fault.CodeOf(err) == "guest_silent" {
			t.Errorf("Start with an ended context: got %v, want an error other than guest_silent", err)
		}
	})
}
