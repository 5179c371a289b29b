package interpreter

import (
	"bufio"
	"encoding/json"
	"io"
	"io/fs"
	"os/exec"
	"testing"
)

// checker is an interpreter that answers each line of JSON with "" or with what is wrong.
type checker struct {
	in  io.WriteCloser
	out *bufio.Reader
}

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
	if wrong := c.check(tb, string(text)); wrong != "" {
		tb.Fatal(wrong)
	}
	return c
}

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
	var wrong string
	if err == nil {
		err = json.Unmarshal([]byte(answer), &wrong)
	}
	if err != nil {
		tb.Fatalf("%q: %v", code, err)
	}
	return wrong
}

// A valid script stays one, on the same lines, and an invalid one fails with a SyntaxError.
const checkRewrite = `
const vm = require("vm"), rl = require("readline").createInterface({ input: process.stdin });
let part;
const compile = (text) => new vm.Script(text, { filename: "f" });
function check(code) {
  let valid = true, made;
  try { compile(code) } catch { valid = false }
  try { made = part.prepare(code, compile) } catch (e) {
    if (valid) return "valid code is refused: " + e;
    return e instanceof SyntaxError ? "" : "another error: " + e.stack;
  }
  const breaks = (s) => s.split("\n").length;
  if (![0, 1].includes(breaks(made.text) - breaks(code)) && !/return \(/.test(made.text)) return "lines moved: " + made.text;
  if (!Array.isArray(made.names)) return "no names";
  return "";
}
rl.on("line", (l) => {
  const code = JSON.parse(l);
  let wrong = "";
  if (!part) part = compile(code).runInThisContext(); else wrong = check(code);
  process.stdout.write(JSON.stringify(wrong) + "\n");
});`

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
		if wrong := c.check(t, code); wrong != "" {
			t.Errorf("%q: %s", code, wrong)
		}
	})
}

// Python code stays unchanged, lines stay lines, and nothing fails.
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
    code, wrong = json.loads(line), ""
    if first:
        exec(compile(code, "magics", "exec"), part)
    else:
        try:
            wrong = check(code)
        except BaseException as e:
            wrong = repr(e)
    first = False
    print(json.dumps(wrong), flush=True)
`

func FuzzMagics(f *testing.F) {
	for _, s := range []string{
		"!ls", "%cd x\n1", "%%bash\na\nb", "x = !ls", "x = (1\n% 2)", "s = '''\n!a\n'''", "'a\\\n%b'", "x = \\\n  3", "!a \\\n b \\", "\"\"\"\n%x\n\"\"\" % 1",
		"r'\\' # '\n", "a['!'] = !b", "f\"{'x'}\"", "# '''\n!ls", "[\n!x\n]", "''''''\n'''\n%a'''", "%", "!", "%%", "!!ls",
	} {
		f.Add(s)
	}
	c := newChecker(f, "python/magics.py", checkMagics, "/usr/bin/python3", "-c")
	f.Fuzz(func(t *testing.T, code string) {
		if wrong := c.check(t, code); wrong != "" {
			t.Errorf("%q: %s", code, wrong)
		}
	})
}
