package guest_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/census"
)

// The server can list the processes, and may signal any process except the first.
func TestCensusAndSignal(t *testing.T) {
	b := newTestGuest(t, nil)
	child := exec.CommandContext(t.Context(), "sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	w := b.call(t, "GET", guest.PathCensus, nil, guest.ControlHeader, control)
	var c census.Census
	if err := json.Unmarshal(w.Body.Bytes(), &c); err != nil || w.Code != 200 {
		t.Fatalf("census: got %d %s, %v, want 200 and a list", w.Code, w.Body, err)
	}
	i := slices.IndexFunc(c.Processes, func(p census.Process) bool { return p.PID == child.Process.Pid })
	if i < 0 || c.Processes[i].Parent != os.Getpid() || c.Processes[i].Requested || c.Processes[i].User == "" {
		t.Errorf("the child process is missing or has wrong values: index %d of %+v", i, c.Processes)
	}
	signal := func(body string) int {
		return b.call(t, "POST", guest.PathSignal, strings.NewReader(body), guest.ControlHeader, control).Code
	}
	for _, body := range []string{"", "{}", `{"pid":1,"signal":9}`, `{"pid":-1,"signal":9}`, `{"pid":0,"signal":9}`, `{"pid":5,"signal":0}`, `{"pid":5,"signal":99}`, `{"pid":5,"signal":9,"all":true}`} {
		if got := signal(body); got != 400 {
			t.Errorf("signal %s: got status %d, want 400", body, got)
		}
	}
	if got := signal(fmt.Sprintf(`{"pid":%d,"signal":9}`, child.Process.Pid)); got != 204 {
		t.Errorf("signal to the child: got status %d, want 204", got)
	}
	if err := child.Wait(); err == nil || child.ProcessState.String() != "signal: killed" {
		t.Errorf("the child ended with %v, want signal: killed", err)
	}
	if got := signal(fmt.Sprintf(`{"pid":%d,"signal":9}`, child.Process.Pid)); got != 404 {
		t.Errorf("signal to an ended process: got status %d, want 404", got)
	}
}
