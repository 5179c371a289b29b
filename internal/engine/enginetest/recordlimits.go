package enginetest

import (
	"testing"

	"github.com/crannog/crannog/internal/audit/events"
	"github.com/crannog/crannog/internal/engine"
)

// forksUntil tries to start the given number of processes at once, and prints the error that
// stopped it.
const forksUntil = `python3 -c '
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

// filesUntil tries to create the given number of files, and removes them.
const filesUntil = `python3 -c '
import os, shutil, sys
os.mkdir("d")
said = "all"
try:
    for i in range(int(sys.argv[1])):
        os.close(os.open("d/%d" % i, os.O_CREAT | os.O_WRONLY))
except OSError:
    said = "full"
shutil.rmtree("d")
print(said)' `

var recordLimitRules = []rule{
	// P6
	{"record/reached-limits-are-recorded", func(t testing.TB, c *Config) {
		const maximum = 2000
		b, v := c.watched(t, c.Open(t, t.TempDir()), func(s *engine.Spec) {
			s.Limits.DiskBytes, s.Limits.DiskInodes, s.Limits.PIDs = 64<<20, maximum, 64
		})
		met := func(line, output, limit string, size int64) {
			t.Helper()
			v.seen(t, b)
			r := b.sh(t, line)
			if r.stdout != output {
				t.Fatalf("%s: %+v", line, r)
			}
			got := only(v.seen(t, b), events.Limit, anyEvent)
			switch {
			case limit == "" && len(got) > 0, limit != "" && len(got) != 1:
				t.Errorf("%s: %+v", line, got)
			case limit != "":
				if e := got[0]; e.Reason != limit || e.Size != size || e.UID != 1000 || e.PID == 0 || e.Command == 0 {
					t.Errorf("%s: %+v", line, e)
				}
			}
		}
		met("head -c 1m /dev/zero > a && echo room", "room\n", "", 0)
		// Repeated attempts are recorded as one event.
		met("for i in 1 2 3 4 5 6 7 8; do head -c 100m /dev/zero > b$i; done; echo full", "full\n", events.LimitDisk, 64<<20)
		met("rm -f a b?; head -c 1m /dev/zero > a && echo room", "room\n", "", 0)
		met("fallocate -l 200m c; rm -f c; echo full", "full\n", events.LimitDisk, 64<<20)
		met(filesUntil+"100", "all\n", "", 0)
		met(filesUntil+"3000", "full\n", events.LimitInodes, maximum)
		met(forksUntil+"20", "all\n", "", 0)
		met(forksUntil+"200", "bounded\n", events.LimitPIDs, 64)
	}},
	{"record/limits-that-a-program-sets-are-not-recorded", func(t testing.TB, c *Config) {
		b, v := c.watched(t, c.Open(t, t.TempDir()), func(s *engine.Spec) { s.Limits.PIDs = 64 })
		v.seen(t, b)
		for line, output := range map[string]string{
			forksUntil + "20 3": "bounded\n",
			"head -c 100m /dev/zero > /dev/shm/x; rm /dev/shm/x; echo full": "full\n",
			"head -c 1m /dev/zero > /dev/full; echo full":                   "full\n",
		} {
			if r := b.sh(t, line); r.stdout != output {
				t.Fatalf("control: %s: %+v", line, r)
			}
		}
		if got := only(v.seen(t, b), events.Limit, anyEvent); len(got) > 0 {
			t.Errorf("%+v", got)
		}
	}},
}
