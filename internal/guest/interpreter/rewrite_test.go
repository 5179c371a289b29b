package interpreter

import (
	"bufio"
	"encoding/json"
	"io"
	"io/fs"
	"os/exec"
	"testing"
)

// checker is a program that checks code. For each line of JSON, it answers with "" or a description
// of the problem.
type checker struct {
	in  io.WriteCloser
	out *bufio.Reader
}

// newChecker starts a checker for a source file of a worker.
func newChecker(tb testing.TB, source, program string, argv ...string) checker {
	tb.Helper()
	text, err := fs.ReadFile(sources, source)
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(argv[0], append(argv[1:], program)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	cmd.Stderr = tb.Output()
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	c := checker{in, bufio.NewReader(out)}
	if problem := c.check(tb, string(text)); problem != "" {
		tb.Fatal(problem)
	}
	return c
}

// check returns the problem that the checker finds in code, or "".
func (c checker) check(tb testing.TB, code string) string {
	tb.Helper()
	line, err := json.Marshal(code)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := c.in.Write(append(line, '\n')); err != nil {
		tb.Fatal(err)
	}
	answer, err := c.out.ReadString('\n')
	var problem string
	if err == nil {
		err = json.Unmarshal([]byte(answer), &problem)
	}
	if err != nil {
		tb.Fatalf("no answer of the checker for %q: %v", code, err)
	}
	return problem
}

// checkRewrite is a checker for rewrite.js: a rewritten valid script is valid and has the same
// lines, and an invalid script fails with a SyntaxError.
const checkRewrite = `
const vm = require("vm"), rl = require("readline").createInterface({ input: process.stdin });
let part;
const compile = (text) => new vm.Script(text, { filename: "f" });
function check(code) {
  let valid = true, made;
  try { compile(code) } catch { valid = false }
  try { made = part.prepare(code, compile) } catch (e) {
    if (valid) return "valid code is rejected: " + e;
    return e instanceof SyntaxError ? "" : "another error: " + e.stack;
  }
  const breaks = (s) => s.split("\n").length;
  if (![0, 1].includes(breaks(made.text) - breaks(code)) && !/return \(/.test(made.text)) return "lines moved: " + made.text;
  if (!Array.isArray(made.names)) return "no names";
  return "";
}
rl.on("line", (l) => {
  const code = JSON.parse(l);
  let problem = "";
  if (!part) part = compile(code).runInThisContext(); else problem = check(code);
  process.stdout.write(JSON.stringify(problem) + "\n");
});`

// FuzzRewriteJavaScript checks the rewriting of any JavaScript code.
func FuzzRewriteJavaScript(f *testing.F) {
	for _, s := range []string{
		"", "let a = 1, {b, c: [d]} = e\nconst f = 2; class G extends H { x() {} }\nvar i", "await x\ny + 1", "import a, {b as c} from 'd'; a",
		"`${`${a}`}` / 2 /re[/]/g", "for await (const x of y)\n  z\n", "if (a) b\nelse c", "function f() {}\n(1)", "{a: 1}", "async () => await 1",
		"x = function () {}\n(1)", "a\n++b", "let\nx", "'\\\n'", "/*", "`${", "}", "<!-- x", "import.meta", "class A { static { await } }", "await (x)\n[1]",
	} {
		f.Add(s)
	}
	c := newChecker(f, "javascript/rewrite.js", checkRewrite, "/usr/bin/node", "-e")
	f.Fuzz(func(t *testing.T, code string) {
		if problem := c.check(t, code); problem != "" {
			t.Errorf("rewriting %q: %s", code, problem)
		}
	})
}

// checkMagics is a checker for magics.py: valid Python code stays unchanged, and rewriting never
// fails or changes the number of lines.
const checkMagics = `
import json, sys, types
part = {"use": lambda name: types.SimpleNamespace(main=types.ModuleType("m")), "worker": None}
def check(code):
    if "\r" in code or "\f" in code or "\0" in code:
        return ""
    try:
        compile(code, "f", "exec")
        valid = True
    except Exception:
        valid = False
    made = part["rewrite"](code)
    if valid and made != code:
        return "valid code became " + made
    if not code.lstrip("\n ").startswith("%%") and made.count("\n") != code.count("\n"):
        return "lines moved: " + made
    return ""
first = True
import warnings; warnings.simplefilter("ignore")
for line in sys.stdin:
    code, problem = json.loads(line), ""
    if first:
        exec(compile(code, "magics", "exec"), part)
    else:
        try:
            problem = check(code)
        except BaseException as e:
            problem = repr(e)
    first = False
    print(json.dumps(problem), flush=True)
`

// FuzzMagics checks the rewriting of any Python code.
func FuzzMagics(f *testing.F) {
	for _, s := range []string{
		"!ls", "%cd x\n1", "%%bash\na\nb", "x = !ls", "x = (1\n% 2)", "s = '''\n!a\n'''", "'a\\\n%b'", "x = \\\n  3", "!a \\\n b \\", "\"\"\"\n%x\n\"\"\" % 1",
		"r'\\' # '\n", "a['!'] = !b", "f\"{'x'}\"", "# '''\n!ls", "[\n!x\n]", "''''''\n'''\n%a'''", "%", "!", "%%", "!!ls",
	} {
		f.Add(s)
	}
	c := newChecker(f, "python/magics.py", checkMagics, "/usr/bin/python3", "-c")
	f.Fuzz(func(t *testing.T, code string) {
		if problem := c.check(t, code); problem != "" {
			t.Errorf("rewriting %q: %s", code, problem)
		}
	})
}
