package interpreter

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestPythonKeepsStateAndShowsLastValue(t *testing.T) {
	b := newTestServer(t)
	if o := b.python("x = 6"); o.err != nil || len(o.results) != 0 || o.count != 1 {
		t.Fatalf("assignment: got %+v, want no results", o.lines)
	}
	o := b.python("print('hi')\nx * 7").wantOK(t)
	if o.text() != "42" || o.stdout != "hi\n" || o.count != 2 {
		t.Fatalf("second execution: got %+v, want the value 42 and the output hi", o.lines)
	}
	for _, c := range []struct{ code, want string }{
		{"'it'", "it"}, {`"it's"`, "it's"}, {"[1, 'a']", "[1, 'a']"}, {"None", ""}, {"x;", ""}, {"x  ; # note", ""},
		{"import asyncio\nawait asyncio.sleep(0, result=5)", "5"}, {"{1: 2}", "{1: 2}"}, {"", ""}, {"# nothing", ""},
		{"40 + 1", "41"}, {"_ + 1", "42"}, {"[_, __]", "[42, 41]"}, {"'é' * 3", "ééé"}, {"'a\\n'", "a\\n"},
		{"list(range(40))", "[" + strings.Join(numbers(40), ",\n ") + "]"},
		{"async def f():\n    return 3\nawait f()", "3"}, {"  x = 4\n  x", "4"},
		{"__name__", "__main__"}, {"import sys; sys.argv", "['']"},
		{"import pickle\nclass C: pass\nisinstance(pickle.loads(pickle.dumps(C())), C)", "True"},
		{"def g():\n    return 'source'\nimport inspect\ninspect.getsource(g)", `def g():\n    return 'source'\n`},
		{"import multiprocessing as m\nwith m.get_context('fork').Pool(2) as p: r = p.map(abs, [-1, 2])\nr", "[1, 2]"},
	} {
		if o := b.python(c.code).wantOK(t); o.text() != c.want {
			t.Errorf("%q shows %q, want %q", c.code, o.text(), c.want)
		}
	}
}

// numbers lists the numbers below n.
func numbers(n int) []string {
	var parts []string
	for i := range n {
		parts = append(parts, strconv.Itoa(i))
	}
	return parts
}

func TestPythonErrors(t *testing.T) {
	b := newTestServer(t)
	for _, c := range []struct {
		code, name, value string
		trace             []string
	}{
		{"def f():\n    1/0\nf()", "ZeroDivisionError", "division by zero",
			[]string{"Traceback (most recent call last):\n  File \"<cell 1>\", line 3, in <module>\n    f()\n", "line 2, in f\n    1/0\n", "\nZeroDivisionError: division by zero"}},
		{"x = (", "SyntaxError", "(<cell 2>, line 1)", []string{"File \"<cell 2>\", line 1\n    x = (\n"}},
		{"try:\n    {}['k']\nexcept KeyError as e:\n    raise ValueError('v') from e", "ValueError", "v", []string{"KeyError: 'k'", "direct cause", "line 4"}},
		{"import sys; sys.exit(3)", "SystemExit", "3", []string{"SystemExit: 3"}},
		{"exit()", "SystemExit", "", nil},
		{"input('? ')", "StdinNotImplementedError", "input() was called, but a sandbox has no standard input.", nil},
		{"class Bad(Exception):\n    def __str__(self): raise RuntimeError\nraise Bad", "Bad", "<str() of the exception failed: RuntimeError>", nil},
		{"class R:\n    def __repr__(self): return 1/0\nR()", "ZeroDivisionError", "division by zero", nil},
		{"def r(): r()\nr()", "RecursionError", "maximum recursion depth exceeded", nil},
		{"raise KeyboardInterrupt", "KeyboardInterrupt", "", nil},
		{"import json\njson.loads('{')", "JSONDecodeError", "Expecting property name", []string{"json/decoder.py"}},
		{"async def a(): 1/0\nawait a()", "ZeroDivisionError", "division by zero", []string{"line 1, in a"}},
		{"  x = 1\n y = 2", "IndentationError", "unexpected indent", nil},
		{"%nosuch", "UsageError", "%nosuch is not available here", nil},
		{"%%nosuch\nx", "UsageError", "%%nosuch is not available here", nil},
		{"%%bash\nexit 3", "ShellError", "status 3", nil},
		{"raise Exception('x' * 500_000)", "Exception", "characters left out", nil},
	} {
		o := b.python(c.code)
		if o.err == nil || o.err.Name != c.name || !strings.Contains(o.err.Value, c.value) {
			t.Errorf("error of %q: got %+v, want %s with %q", c.code, o.lines, c.name, c.value)
			continue
		}
		contains(t, c.code, o.err.Traceback, append(c.trace, c.name)...)
		if first := strings.SplitN(o.err.Traceback, "\n", 3); len(first) > 1 && strings.Contains(first[1], "<crannog") {
			t.Errorf("%q: the traceback begins with the worker: %s", c.code, o.err.Traceback)
		}
	}
	if o := b.python("'alive'").wantOK(t); o.text() != "alive" {
		t.Errorf("execution after the errors: got %+v, want alive", o.lines)
	}
}

func TestPythonOutput(t *testing.T) {
	b := newTestServer(t)
	for _, c := range []struct{ code, stdout, stderr string }{
		{"import sys, os\nprint('a'); os.system('echo b'); print('c', file=sys.stderr); os.write(1, b'd\\n')", "a\nb\nd\n", "c\n"},
		{"import threading\nt = [threading.Thread(target=print, args=('x' * 100,)) for _ in range(20)]\n[i.start() for i in t]; [i.join() for i in t]; None",
			strings.Repeat(strings.Repeat("x", 100)+"\n", 20), ""},
		{"pid = os.fork()\nprint('both')\nif pid: os.waitpid(pid, 0)", "both\nboth\n", ""},
		{"pid = os.fork()\nif pid == 0: display('shown by the child'); raise ValueError\nos.waitpid(pid, 0); None", "shown by the child\n", "ValueError"},
		{"print('\\udc80')", "\\udc80\n", ""},
		{"import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()) as s: print('in')\nprint(s.getvalue() + 'out')", "in\nout\n", ""},
		{"import traceback\ntry: 1/0\nexcept Exception: traceback.print_exc()", "", "try: 1/0"},
		{"os.close(1) or os.dup2(2, 1); print('moved'); None", "", "moved\n"},
	} {
		o := b.python(c.code).wantOK(t)
		if strings.ReplaceAll(o.stdout, "\n\n", "\n") != c.stdout && len(o.stdout) != len(c.stdout) || !strings.Contains(o.stderr, c.stderr) {
			t.Errorf("%q: got stdout %q, stderr %q, want %q and %q", c.code, o.stdout, o.stderr, c.stdout, c.stderr)
		}
	}
}

func TestPythonKeepsOrderOfResultsAndText(t *testing.T) {
	b := newTestServer(t)
	o := b.python("for i in range(20):\n    print('t', i)\n    display(i)").wantOK(t)
	var got []string
	for _, l := range o.lines {
		if l.Type == "stdout" || l.Type == "result" {
			got = append(got, strings.TrimSpace(strings.TrimPrefix(l.Text, "t ")))
		}
	}
	var doubled []string
	for _, n := range numbers(20) {
		doubled = append(doubled, n, n)
	}
	if strings.Join(got, " ") != strings.Join(doubled, " ") {
		t.Errorf("order of results and text: got %v, want %v", got, doubled)
	}
}

func TestPythonMagics(t *testing.T) {
	b := newTestServer(t)
	if err := os.Mkdir(filepath.Join(b.home, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ code, stdout, text string }{
		{"name = 'it'\n!echo $name {name + '!'} $HOME", "it it! " + b.home + "\n", ""},
		{"!exit 4\n_exit_code", "", "4"},
		{"files = !printf 'a\\nb'\nfiles", "", "['a', 'b']"},
		{"if True:\n    !echo in\n    x = 5 % 3\nx", "in\n", "2"},
		{"s = '''\n!not a command\n%not a magic\n'''\n!echo done\nlen(s)", "done\n", "29"},
		{"y = (7\n% 4)\n!echo $y", "3\n", ""},
		{"!echo one \\\n  two\n1", "one two\n", "1"},
		{"%cd sub\n%pwd", b.home + "/sub\n", b.home + "/sub"},
		{"%cd -\n", b.home + "\n", ""},
		{"%env A=b\n%env A", "env: A=b\n", "b"},
		{"%%bash\necho $A\nfor i in 1 2; do echo $i; done", "b\n1\n2\n", ""},
		{"%%writefile f.txt\nline\n", "Writing f.txt\n", ""},
		{"open('f.txt').read()", "", "line\\n"},
		{"%matplotlib inline\n8", "", "8"},
		{"r = %time 3 + 4\nr", "", "7"},
		{"get_ipython().run_line_magic('pwd', '')", "", b.home},
		{"10 % 3", "", "1"}, {"a != 3 if (a := 4) else 0", "", "True"},
	} {
		o := b.python(c.code).wantOK(t)
		if strings.Contains(c.code, "%time ") {
			contains(t, c.code, o.stdout, "Wall time")
			o.stdout = ""
		}
		if o.stdout != c.stdout || o.text() != c.text {
			t.Errorf("%q: got stdout %q and value %q, want %q and %q", c.code, o.stdout, o.text(), c.stdout, c.text)
		}
	}
	contains(t, "%timeit", b.python("%timeit -n 10 -r 2 1 + 1").wantOK(t).stdout, "per loop", "2 runs, 10 loops")
	contains(t, "%%timeit", b.python("%%timeit -n 10 q = 3\nq + 1").wantOK(t).stdout, "per loop")
	if o := b.python("x = 1\n\n!echo hi\n1/0"); o.err == nil || !strings.Contains(o.err.Traceback, "line 4") {
		t.Errorf("a magic moved the lines: %+v", o.err)
	}
}
