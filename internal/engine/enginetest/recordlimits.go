package enginetest

import (
	"testing"

	"github.com/crannog/crannog/internal/audit/events"
	"github.com/crannog/crannog/internal/engine"
)

// startProcesses is a command that starts the given number of processes. It prints whether all
// could be started. A second argument sets the program's own limit.
const startProcesses = `python3 -c '
import os, resource, sys, time
if len(sys.argv) > 2:
    resource.setrlimit(resource.RLIMIT_NPROC, (int(sys.argv[2]), int(sys.argv[2])))
n = 0
try:
    while n < int(sys.argv[1]):
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
        n += 1
    print("all", flush=True)
except BlockingIOError:
    print("bounded", flush=True)
os.killpg(0, 9)' `

// createFiles is a command that creates the given number of files, and removes them. It prints
// whether all could be created.
const createFiles = `python3 -c '
import os, shutil, sys
os.mkdir("d")
result = "all"
try:
    for i in range(int(sys.argv[1])):
        os.close(os.open("d/%d" % i, os.O_CREAT | os.O_WRONLY))
except OSError:
    result = "full"
shutil.rmtree("d")
print(result)' `

var recordLimitRules = []rule{
	// P6 of docs/reference/promises.md
	{"record/reached-limits-are-recorded", func(t testing.TB, c *Config) {
		const maximum = 2000
		b, v := c.startObserved(t, c.Open(t, t.TempDir()), func(s *engine.Spec) {
			s.Limits.DiskBytes, s.Limits.DiskInodes, s.Limits.PIDs = 64<<20, maximum, 64
		})
		wantLimit := func(line, output, limit string, size int64) {
			t.Helper()
			v.surveyNew(t, b)
			r := b.sh(t, line)
			if r.stdout != output {
				t.Fatalf("the command %s returned %+v, want %q", line, r, output)
			}
			got := filter(v.surveyNew(t, b), events.Limit, anyEvent)
			switch {
			case limit == "" && len(got) > 0, limit != "" && len(got) != 1:
				t.Errorf("%s: got the events %+v, want %q", line, got, limit)
			case limit != "":
				if e := got[0]; e.Reason != limit || e.Size != size || e.UID != 1000 || e.PID == 0 || e.Command == 0 {
					t.Errorf("%s: got the event %+v, want the limit %s of %d", line, e, limit, size)
				}
			}
		}
		wantLimit("head -c 1m /dev/zero > a && echo room", "room\n", "", 0)
		// Repeated attempts are recorded as one event.
		wantLimit("for i in 1 2 3 4 5 6 7 8; do head -c 100m /dev/zero > b$i; done; echo full", "full\n", events.LimitDisk, 64<<20)
		wantLimit("rm -f a b?; head -c 1m /dev/zero > a && echo room", "room\n", "", 0)
		wantLimit("fallocate -l 200m c; rm -f c; echo full", "full\n", events.LimitDisk, 64<<20)
		wantLimit(createFiles+"100", "all\n", "", 0)
		wantLimit(createFiles+"3000", "full\n", events.LimitInodes, maximum)
		wantLimit(startProcesses+"20", "all\n", "", 0)
		wantLimit(startProcesses+"200", "bounded\n", events.LimitPIDs, 64)
	}},
	{"record/limits-that-a-program-sets-are-not-recorded", func(t testing.TB, c *Config) {
		b, v := c.startObserved(t, c.Open(t, t.TempDir()), func(s *engine.Spec) { s.Limits.PIDs = 64 })
		v.surveyNew(t, b)
		for line, output := range map[string]string{
			startProcesses + "20 3": "bounded\n",
			"head -c 100m /dev/zero > /dev/shm/x; rm /dev/shm/x; echo full": "full\n",
			"head -c 1m /dev/zero > /dev/full; echo full":                   "full\n",
		} {
			if r := b.sh(t, line); r.stdout != output {
				t.Fatalf("control: %s: %+v", line, r)
			}
		}
		if got := filter(v.surveyNew(t, b), events.Limit, anyEvent); len(got) > 0 {
			t.Errorf("limits of programs were recorded: %+v", got)
		}
	}},
}
