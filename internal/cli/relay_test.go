package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
)

// A command whose sandbox another caller pauses or resumes returns an error with the
// sandbox's state, also if the command was cut off before it was known to run.
func TestInterruptedCommandErrorHasSandboxState(t *testing.T) {
	for state, want := range map[string]view{
		"resuming": {Code: "stream_lost", Hint: "check before"},
		"pausing":  {Code: "sandbox_paused", Hint: "crannog resume box"},
		"paused":   {Code: "sandbox_paused", Hint: "crannog resume box"},
	} {
		for _, started := range []bool{false, true} {
			var calls, lookups atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodGet:
					now := state
					if lookups.Add(1) <= 2 { // the first two requests find a running sandbox
						now = "running"
					}
					_ = json.NewEncoder(w).Encode(api.Sandbox{ID: "i1", Name: "box", State: now})
				case started:
					calls.Add(1)
					w.Header().Set("Content-Type", "application/connect+proto")
					_, _ = w.Write([]byte{0, 0}) // the beginning of a message
				default:
					calls.Add(1)
					w.WriteHeader(http.StatusBadGateway)
				}
			}))
			t.Cleanup(server.Close)
			c, err := crannog.New(crannog.URL(server.URL))
			if err != nil {
				t.Fatal(err)
			}
			sb, err := c.Get(t.Context(), "i1")
			if err != nil {
				t.Fatal(err)
			}
			_, err = runVerbs{&app{}}.attached(t.Context(), sb, sb.Command("true"), nil)
			v := viewOf(fail("run true", err))
			if v.Code != want.Code || !strings.HasSuffix(v.Cause, "and is "+state+" now") || !strings.Contains(v.Hint, want.Hint) || calls.Load() != 1 {
				t.Errorf("state %s, started %v: got %d calls, error %+v", state, started, calls.Load(), v)
			}
		}
	}
}
