package interpreter

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// endlessCode is code that runs until it is interrupted, by language.
var endlessCode = map[string]string{
	"python":     "print('go', flush=True)\nwhile True: pass",
	"javascript": "console.log('go'); while (true) {}",
	"bash":       "echo go; while true; do :; done",
	"r":          "cat('go\n')\nwhile (TRUE) {}",
	"java":       `System.out.println("go"); while (true) {}`,
}

// needLanguage skips the test, or fails it on CI, if the host cannot run a language.
func needLanguage(t testing.TB, name string) {
	t.Helper()
	if program := languages[name].program; name == "r" || name == "java" {
		hosttest.Need(t, hosttest.Program(program))
	}
}

// newServerFor returns a server whose host can run a language.
func newServerFor(t *testing.T, name string) *testServer {
	t.Helper()
	needLanguage(t, name)
	return newTestServer(t)
}

// stateCode is code that sets a variable, and code that shows it.
var stateCode = map[string][2]string{
	"python":     {"kept = 'yes'", "print(globals().get('kept'))"},
	"javascript": {"let kept = 'yes'", "console.log(globalThis.kept)"},
	"bash":       {"kept=yes", "echo $kept"},
	"r":          {"kept <- 'yes'", "cat(get0('kept', ifnotfound = 'no'), '\n', sep = '')"},
	"java":       {`System.setProperty("kept", "yes")`, `System.out.println(System.getProperty("kept"))`},
}

// begin starts an execution and waits for its first output. disconnect ends the connection of the
// client.
func (b *testServer) begin(body payload) (lines *bufio.Reader, disconnect func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	resp := b.do(ctx, "POST", "/execute", body, testToken)
	disconnect = func() { cancel(); _ = resp.Body.Close() }
	b.t.Cleanup(disconnect)
	lines = bufio.NewReader(resp.Body)
	for {
		text, err := lines.ReadString('\n')
		if err != nil {
			b.t.Fatal(err)
		}
		if strings.Contains(text, `"stdout"`) {
			return lines, disconnect
		}
	}
}

// finish reads an execution to its end.
func (b *testServer) finish(lines *bufio.Reader) outcome {
	b.t.Helper()
	var o outcome
	for {
		text, err := lines.ReadString('\n')
		if err != nil {
			return o
		}
		o.add(b.t, text)
	}
}

func TestDisconnectInterruptsAndKeepsState(t *testing.T) {
	for lang := range endlessCode {
		t.Run(lang, func(t *testing.T) {
			t.Parallel()
			needLanguage(t, lang)
			b := newTestServer(t)
			b.t = t
			// Only the interrupt may end the code. With a short limit, a busy machine would kill it
			// and lose the state.
			b.server.pace.interrupt = hosttest.Patience(hosttest.Hang)
			b.run(payload{"language": lang, "code": stateCode[lang][0]}).wantOK(t)
			_, disconnect := b.begin(payload{"language": lang, "code": endlessCode[lang]})
			disconnect()
			o := b.run(payload{"language": lang, "code": stateCode[lang][1]}).wantOK(t)
			if o.stdout != "yes\n" {
				t.Errorf("the state of the context was lost: %+v", o.lines)
			}
		})
	}
}

// Code that sleeps, waits or has started a program is interrupted too.
func TestDisconnectInterruptsWaitingCode(t *testing.T) {
	for name, body := range map[string]payload{
		"python sleep":  {"code": "print('go')\nimport time; time.sleep(100)"},
		"python await":  {"code": "print('go')\nimport asyncio; await asyncio.sleep(100)"},
		"python child":  {"code": "print('go')\n!sleep 100"},
		"python thread": {"code": "import threading\nprint('go')\nt = threading.Thread(target=lambda: __import__('time').sleep(1), daemon=True); t.start(); t.join()"},
		// The code prints while it waits, because Node loses a signal that arrives just after a
		// script's last line, or delivers it to the next script.
		"js await":      {"language": "js", "code": "setTimeout(() => console.log('go')); await new Promise(r => setTimeout(r, 1e6))"},
		"bash child":    {"language": "bash", "code": "echo go; for i in 1 2 3; do sleep 100; done"},
		"bash function": {"language": "bash", "code": "f() { echo go; sleep 100 | cat; echo never; }; f"},
		"r sleep":       {"language": "r", "code": "cat('go\n'); Sys.sleep(100)"},
		"r child":       {"language": "r", "code": "cat('go\n'); system('sleep 100')"},
		"java sleep":    {"language": "java", "code": `System.out.println("go"); Thread.sleep(100000);`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestServer(t)
			b.t = t
			b.server.pace.interrupt = time.Minute
			lang, _ := body["language"].(string)
			if canonical, ok := aliases[lang]; ok {
				lang = canonical
			}
			needLanguage(t, lang)
			b.run(payload{"language": lang, "code": stateCode[lang][0]}).wantOK(t)
			_, disconnect := b.begin(body)
			disconnect()
			if o := b.run(payload{"language": lang, "code": stateCode[lang][1]}).wantOK(t); o.stdout != "yes\n" {
				t.Errorf("the state of the context was lost: %+v", o.lines)
			}
		})
	}
}

func TestCodeIgnoringInterruptsIsKilled(t *testing.T) {
	for lang, code := range map[string]string{
		"python":     "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('go')\nwhile True: pass",
		"javascript": "await null; console.log('go'); while (true) {}",
		"bash":       "trap '' INT; echo go; while true; do :; done",
	} {
		t.Run(lang, func(t *testing.T) {
			t.Parallel()
			b := newTestServer(t)
			b.t = t
			b.server.pace.interrupt = 100 * time.Millisecond
			_, disconnect := b.begin(payload{"language": lang, "code": code})
			disconnect()
			o := b.run(payload{"language": lang, "code": stateCode[lang][1]}).wantOK(t)
			if strings.Contains(o.stdout, "yes") || o.count != 1 {
				t.Errorf("the worker was not replaced: %+v", o.lines)
			}
		})
	}
}

func TestEnvVarsApplyToOneExecution(t *testing.T) {
	show := map[string]string{
		"python":     "import os; print(os.environ.get('G'), os.environ.get('ONE'))",
		"javascript": "console.log(process.env.G ?? 'None', process.env.ONE ?? 'None')",
		"bash":       `echo "${G-None} ${ONE-None}"`,
	}
	b := newTestServer(t)
	b.env["G"] = "global"
	for lang, code := range show {
		set := payload{"language": lang, "code": code, "env_vars": map[string]string{"G": "mine", "ONE": "1"}}
		if o := b.run(set).wantOK(t); o.stdout != "mine 1\n" {
			t.Errorf("%s with variables: got %q, want mine 1", lang, o.stdout)
		}
		if o := b.run(payload{"language": lang, "code": code}).wantOK(t); o.stdout != "global None\n" {
			t.Errorf("%s without variables: got %q, want global None", lang, o.stdout)
		}
		failing := payload{"language": lang, "code": "no such code (", "env_vars": map[string]string{"ONE": "1"}}
		if o := b.run(failing); o.err == nil {
			t.Errorf("%s, failing code: got %+v, want an error", lang, o.lines)
		}
		if o := b.run(payload{"language": lang, "code": code}).wantOK(t); o.stdout != "global None\n" {
			t.Errorf("%s after a failure: got %q, want global None", lang, o.stdout)
		}
	}
}

func TestWorkerExitIsReported(t *testing.T) {
	b := newTestServer(t)
	needLanguage(t, "r")
	needLanguage(t, "java")
	for lang, codes := range map[string][]string{
		"r":    {"cat('last'); tools::pskill(Sys.getpid(), 9)"},
		"java": {`System.out.println("last"); Runtime.getRuntime().exec(new String[]{"kill", "-9", "" + ProcessHandle.current().pid()}).waitFor()`},
		"python": {
			"print('last', end='')\nimport os; os._exit(3)", "print('last', end='')\nimport os; os.kill(os.getpid(), 9)",
			"print('last', end='')\nimport os; os.write(4, b'garbage\\n'); import time; time.sleep(60)",
			"print('last', end='')\nimport os; os.close(4); os._exit(0)",
			"import os\nos.execv('/bin/echo', ['echo', '-n', 'last'])",
		},
		"javascript": {"console.log('last'); process.exit(3)", "console.log('last'); process.kill(process.pid, 9)",
			"console.log('last'); process.abort()"},
	} {
		for _, code := range codes {
			o := b.run(payload{"language": lang, "code": code})
			if o.err == nil || o.err.Name != "UnexpectedEndOfExecution" || strings.TrimSpace(o.stdout) != "last" {
				t.Errorf("%s, %q: got %+v, want UnexpectedEndOfExecution after the last output", lang, code, o.lines)
			}
			o = b.run(payload{"language": lang, "code": stateCode[lang][1]}).wantOK(t)
			if o.count != 1 {
				t.Errorf("%s after %q: no fresh worker: %+v", lang, code, o.lines)
			}
		}
	}
}

func TestExecutionsInContextAreSequential(t *testing.T) {
	b := newTestServer(t)
	b.python("n = 0").wantOK(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() { b.python("m = n\nimport time; time.sleep(0.01)\nn = m + 1") })
	}
	group.Wait()
	if o := b.python("n").wantOK(t); o.text() != "8" {
		t.Errorf("n is %s after 8 executions", o.text())
	}
}

func TestContextsRunConcurrently(t *testing.T) {
	b := newTestServer(t)
	id := b.newContext(payload{})
	lines, disconnect := b.begin(payload{"context_id": id, "code": "print('go')\nwhile True: pass"})
	if o := b.python("1 + 1").wantOK(t); o.text() != "2" {
		t.Errorf("execution in another context: got %+v, want 2", o.lines)
	}
	disconnect()
	b.finish(lines)
}

func TestKeepaliveDuringSilence(t *testing.T) {
	b := newTestServer(t)
	b.server.pace.keepalive = 20 * time.Millisecond
	lines, _ := b.begin(payload{"code": "import os, time\nprint('go')\nwhile not os.path.exists('enough'): time.sleep(0.01)"})
	for n := 0; n < 3; {
		text, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("%d keepalive lines: %v", n, err)
		}
		if strings.Contains(text, `"keepalive"`) {
			n++
		}
	}
	if err := os.WriteFile(filepath.Join(b.home, "enough"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.finish(lines).wantOK(t)
}

// 100 MB without a newline pass through without being buffered.
func TestOutputNeedsLittleMemory(t *testing.T) {
	b := newTestServer(t)
	resp := b.do(t.Context(), "POST", "/execute", payload{"code": "import sys\nfor i in range(100): sys.stdout.write('é' * 500_000)"}, testToken)
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewReaderSize(resp.Body, 256<<10)
	total, longest, peak := 0, 0, uint64(0)
	var mem runtime.MemStats
	for i := 0; ; i++ {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			t.Fatal(err)
		}
		if strings.Trim(l.Text, "é") != "" {
			t.Fatalf("a chunk breaks a character: %q", strings.Trim(l.Text, "é"))
		}
		total, longest = total+len(l.Text), max(longest, len(l.Text))
		if i%512 == 0 {
			runtime.GC() // so that HeapAlloc counts only memory in use
			runtime.ReadMemStats(&mem)
			peak = max(peak, mem.HeapAlloc)
		}
	}
	if total != 100_000_000 || longest > chunkBytes {
		t.Errorf("got %d bytes, at most %d in a chunk, want 100 MB in chunks of at most %d", total, longest, chunkBytes)
	}
	if peak > 32<<20 {
		t.Errorf("peak memory: got %d MiB, want at most 32", peak>>20)
	}
}

func TestTextIsStreamed(t *testing.T) {
	b := newTestServer(t)
	fifo := filepath.Join(b.home, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for lang, code := range map[string]string{
		"python":     "print('part', end='')\nopen('fifo').read()\nprint('rest')",
		"javascript": "process.stdout.write('part'); require('fs').readFileSync('fifo'); console.log('rest')",
		"bash":       "printf part; cat fifo; echo rest",
	} {
		lines, _ := b.begin(payload{"language": lang, "code": code}) // returns at the first text
		w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		if o := b.finish(lines); o.stdout != "rest\n" {
			t.Errorf("%s: got %+v, want the output rest", lang, o.lines)
		}
	}
}

func TestCloseEndsGoroutinesAndWorkers(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("executions", func(t *testing.T) {
		b := newTestServer(t)
		for lang := range endlessCode {
			needLanguage(t, lang)
			for range 3 {
				_, disconnect := b.begin(payload{"language": lang, "code": endlessCode[lang]})
				disconnect()
			}
			id := b.newContext(payload{"language": lang})
			b.call("POST", "/contexts/"+id+"/restart", nil)
			b.run(payload{"context_id": id, "code": stateCode[lang][0]}).wantOK(t)
			b.call("DELETE", "/contexts/"+id, nil)
		}
	})
	hosttest.Eventually(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= before })
	hosttest.Eventually(t, "workers end", func() bool { return len(children(t)) == 0 })
}

// children returns the processes that this one has started.
func children(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err == nil { // a thread may end in between
			found = append(found, strings.Fields(string(data))...)
		}
	}
	return found
}

// Programs that code starts do not inherit the pipes of the protocol.
func TestProgramsDoNotInheritPipes(t *testing.T) {
	b := newTestServer(t)
	for lang, code := range map[string]string{
		"python":     "import subprocess; subprocess.run(['ls', '-l', '/proc/self/fd'], close_fds=False); None",
		"javascript": "require('child_process').spawnSync('ls', ['-l', '/proc/self/fd'], {stdio: 'inherit'}); undefined",
		"bash":       "ls -l /proc/self/fd",
	} {
		o := b.run(payload{"language": lang, "code": code}).wantOK(t)
		sess, err := b.server.byLanguage(lang)
		if err != nil {
			t.Fatal(err)
		}
		w := sess.worker
		for _, f := range []*os.File{w.requests, w.control, w.acks} {
			link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(o.stdout, link) {
				t.Errorf("%s: a program has inherited %s:\n%s", lang, link, o.stdout)
			}
		}
		contains(t, lang, o.stdout, "1 -> pipe:")
	}
}

func TestRestartEndsExecution(t *testing.T) {
	b := newTestServer(t)
	for lang := range endlessCode {
		needLanguage(t, lang)
		id := b.newContext(payload{"language": lang})
		b.run(payload{"context_id": id, "code": stateCode[lang][0]}).wantOK(t)
		lines, _ := b.begin(payload{"context_id": id, "code": endlessCode[lang]})
		if status, body := b.call("POST", "/contexts/"+id+"/restart", nil); status != 200 || body != "null" {
			t.Errorf("restart: got %d %s, want 200 null", status, body)
		}
		o := b.finish(lines)
		if o.err == nil || o.err.Name != "ContextRestarting" || o.lines[len(o.lines)-1].Type != "end_of_execution" {
			t.Errorf("%s: got %+v, want ContextRestarting and the last line", lang, o.lines)
		}
		o = b.run(payload{"context_id": id, "code": stateCode[lang][1]}).wantOK(t)
		if strings.Contains(o.stdout, "yes") || o.count != 1 {
			t.Errorf("%s: the state survived the restart: %+v", lang, o.lines)
		}
	}
}

func TestRemovalEndsExecution(t *testing.T) {
	b := newTestServer(t)
	id := b.newContext(payload{})
	lines, _ := b.begin(payload{"context_id": id, "code": endlessCode["python"]})
	if status, body := b.call("DELETE", "/contexts/"+id, nil); status != 200 || body != "null" {
		t.Errorf("removal: got %d %s, want 200 null", status, body)
	}
	if o := b.finish(lines); o.err == nil || o.err.Name != "ExecutionAborted" {
		t.Errorf("execution in a removed context: got %+v, want ExecutionAborted", o.lines)
	}
	status, body := b.call("POST", "/execute", payload{"context_id": id, "code": "1"})
	if status != http.StatusNotFound || body != "Context "+id+" not found" {
		t.Errorf("context after its removal: got %d %s, want 404", status, body)
	}
	if slices.ContainsFunc(b.contexts(), func(c contextInfo) bool { return c.ID == id }) {
		t.Error("the removed context is still listed")
	}
}

// Special characters in code and output arrive unchanged.
func TestSpecialCharactersAreUnchanged(t *testing.T) {
	b := newTestServer(t)
	const special = "é世😀\u2028\u0085\x7f\t\"'\\`$HOME %s !x"
	quoted, err := json.Marshal(special)
	if err != nil {
		t.Fatal(err)
	}
	for lang, code := range map[string]string{
		"python":     "print(" + string(quoted) + ")",
		"javascript": "console.log(" + string(quoted) + ")",
		"bash":       "cat <<'end'\n" + special + "\nend",
		"r":          "cat(" + quoteR(special+"\n") + ")",
		"java":       "System.out.println(" + strings.ReplaceAll(string(quoted), "$HOME", "\\u0024HOME") + ")",
	} {
		needLanguage(t, lang)
		if o := b.run(payload{"language": lang, "code": code}).wantOK(t); o.stdout != special+"\n" {
			t.Errorf("output of %s: got %q, want %q", lang, o.stdout, special)
		}
		// A NUL byte in the code must neither block nor kill the worker.
		b.run(payload{"language": lang, "code": "\x00"})
		if o := b.run(payload{"language": lang, "code": stateCode[lang][1]}).wantOK(t); o.count != 3 {
			t.Errorf("%s after a NUL byte: got %+v", lang, o.lines)
		}
	}
}

func TestWorkerThatIsNotReadyIsReported(t *testing.T) {
	b := newTestServer(t)
	dir := t.TempDir()
	b.env["PATH"] = dir
	const sleeps = "#!/bin/sh\nexec /bin/sleep 100"
	for script, want := range map[string]string{
		"#!/bin/sh\nexit 9": "exited with status 9 before it was ready", sleeps: "was not ready after",
		"no program": "could not be started",
	} {
		b.server.pace.start = hosttest.Patience(hosttest.Hang)
		if script == sleeps {
			b.server.pace.start = 300 * time.Millisecond
		}
		if err := os.WriteFile(filepath.Join(dir, "python3"), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		status, text := b.call("POST", "/execute", payload{"code": "1"})
		if status != 500 || !strings.Contains(text, want) {
			t.Errorf("worker %q: got %d %s, want 500 with %q", script, status, text, want)
		}
		hosttest.EventuallyAtMost(t, "processes of "+script, 0, func() int { return len(children(t)) })
	}
}
