package interpreter

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// init makes sure that SIGINT is not ignored. A shell starts background jobs with SIGINT ignored,
// and their child processes inherit that. Without init, tests in a background job would start
// programs that cannot be interrupted.
func init() {
	if signal.Ignored(syscall.SIGINT) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGINT)
	}
}

// Bash drops the command that an interrupt hits. If that command reports the end of the code, the
// report is requested again.
func TestInterruptedEndReportIsRepeated(t *testing.T) {
	b := newTestServer(t)
	b.server.pace.interrupt = time.Minute
	b.run(payload{"language": "bash", "code": stateCode["bash"][0]}).wantOK(t)
	_, disconnect := b.begin(payload{"language": "bash", "code": `echo go; once=0; __crannog_undo='((once++)) || kill -INT $$'`})
	disconnect()
	if o := b.run(payload{"language": "bash", "code": stateCode["bash"][1]}).wantOK(t); o.stdout != "yes\n" {
		t.Errorf("the state of the context was lost: %+v", o.lines)
	}
}

// When the client disconnects, programs that ignore interrupts or have left the process group are
// killed, and the context keeps its state.
func TestDisconnectKillsUninterruptiblePrograms(t *testing.T) {
	for name, body := range map[string]payload{
		"bash, ignored":           {"language": "bash", "code": "echo go; (trap '' INT; exec sleep 1000)"},
		"bash, ignored in a loop": {"language": "bash", "code": "echo go; for i in 1 2 3; do (trap '' INT; exec sleep 1000); done"},
		"bash, another group":     {"language": "bash", "code": "echo go; timeout 1000 sleep 1000"},
		"bash, another session":   {"language": "bash", "code": "echo go; setsid --wait sleep 1000"},
		"python, ignored":         {"language": "python", "code": "print('go')\n!trap '' INT; exec sleep 1000"},
		"python, another group":   {"language": "python", "code": "print('go')\n!timeout 1000 sleep 1000"},
		"python, waits for ever":  {"language": "python", "code": "import subprocess\np = subprocess.Popen(['timeout', '1000', 'sleep', '1000'])\nprint('go')\nwhile p.poll() is None:\n  try: p.wait()\n  except KeyboardInterrupt: pass"},
		"javascript, ignored":     {"language": "javascript", "code": `console.log('go'); require('child_process').spawnSync('sh', ['-c', "trap '' INT; exec sleep 1000"])`},
		"javascript, other group": {"language": "javascript", "code": `console.log('go'); require('child_process').spawnSync('timeout', ['1000', 'sleep', '1000'])`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestServer(t)
			b.t = t
			b.server.pace.interrupt, b.server.pace.force = 100*time.Millisecond, time.Minute
			lang := body["language"].(string)
			b.run(payload{"language": lang, "code": stateCode[lang][0]}).wantOK(t)
			_, disconnect := b.begin(body)
			disconnect()
			if o := b.run(payload{"language": lang, "code": stateCode[lang][1]}).wantOK(t); o.stdout != "yes\n" {
				t.Errorf("the state of the context was lost: %+v", o.lines)
			}
		})
	}
}

// Node counts an interrupt that arrives when a script ends for the next script. Here the program
// that the script waits for ends by the same interrupt, so the script often ends at that moment.
func TestInterruptDoesNotHitNextExecution(t *testing.T) {
	for i := range 8 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			b := newTestServer(t)
			b.t = t
			for range 5 {
				_, disconnect := b.begin(payload{"language": "javascript", "code": `console.log('go'); require('child_process').spawnSync('sleep', ['1000'])`})
				disconnect()
				b.run(payload{"language": "javascript", "code": "1"}).wantOK(t)
			}
		})
	}
}

// A background program of an earlier execution survives the interrupt of a later execution.
func TestDisconnectKeepsBackgroundPrograms(t *testing.T) {
	b := newTestServer(t)
	b.server.pace.interrupt, b.server.pace.force = 100*time.Millisecond, time.Minute
	began := time.Now()
	first := b.run(payload{"language": "bash", "code": "sleep 1000 >/dev/null 2>&1 & echo $!"}).wantOK(t)
	// The worker's own start is measured late by at most the time of this execution, and then its
	// processes seem to have started later too. The kernel counts their starts in hundredths of a second.
	printed := time.Now()
	distinct := printed.Add(printed.Sub(began) + 2*clockSlack)
	pid := strings.TrimSpace(first.stdout)
	for time.Now().Before(distinct) {
		b.run(payload{"language": "bash", "code": ":"}).wantOK(t)
	}
	_, disconnect := b.begin(payload{"language": "bash", "code": "echo go; timeout 1000 sleep 1000"})
	disconnect()
	o := b.run(payload{"language": "bash", "code": fmt.Sprintf("kill -0 %s && echo lives; kill -9 %s", pid, pid)}).wantOK(t)
	if o.stdout != "lives\n" {
		t.Errorf("the background program of an earlier execution was killed: %+v", o.lines)
	}
}

// A program of a ! command that ignores the interrupt ends with its cell.
func TestInterruptedProgramIsKilled(t *testing.T) {
	b := newTestServer(t)
	b.server.pace.interrupt = time.Minute
	file := filepath.Join(b.home, "pid")
	_, disconnect := b.begin(payload{"code": "!echo $$ > " + file + "; trap '' INT; echo go; exec sleep 1000"})
	disconnect()
	b.python("pass").wantOK(t)
	pid, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	hosttest.Eventually(t, "the program ends", func() bool {
		_, err := os.Stat("/proc/" + strings.TrimSpace(string(pid)))
		return err != nil
	})
}
