package interpreter

import "testing"

// F17: indented code with an empty first line runs, because callers write code as string literals
// in indented programs. IPython runs such code too, and E2B's tests contain it.
func TestF17IndentedCells(t *testing.T) {
	b := newTestServer(t)
	for _, c := range []struct{ code, text, stdout string }{
		{"\n    x = 1", "", ""},
		{"\n    x = 2\n    if x:\n        x = 3\n\n    x\n    ", "3", ""},
		{"\n  \n\t\n\tx = 4\n\tx", "4", ""},
		{"\r\n    x = 5\r\n    x\r\n", "5", ""},
		{"\n    # a note\n    x = 6\n    x + 1  # and one more\n", "7", ""},
		{"\n    s = '''a\n    b'''\n    s", "a\\nb", ""},
		{"\n    x = 8\nx", "8", ""},
		{"\n    name = 'it'\n    !echo $name\n", "", "it\n"},
		{"\n    %%bash\n    echo one\n    if true; then\n        echo two\n    fi\n", "", "one\ntwo\n"},
		{"\n    async def f():\n        return 9\n    await f()", "9", ""},
		{">>> x = 10\n>>> x", "10", ""},
		{">>> for i in range(2):\n...     print(i)\n...\n", "", "0\n1\n"},
		{"In [1]: x = 11\n   ...: x", "11", ""},
		{"\n    >>> 12\n", "12", ""},
		{"    ", "", ""},
	} {
		if o := b.python(c.code); o.err != nil || o.text() != c.text || o.stdout != c.stdout {
			t.Errorf("%q: stdout %q, shows %q, error %+v", c.code, o.stdout, o.text(), o.err)
		}
	}
	// Invalid code fails, and the traceback names the line of the caller's code.
	for _, c := range []struct{ code, name, trace string }{
		{"\n    x = 1\n  y = 2", "IndentationError", "line 3"},
		{"\n    x = 1\n        y = 2", "IndentationError", "line 3"},
		{"\n    x = (", "SyntaxError", "line 2"},
		{"\n    x = 1\n    1/0", "ZeroDivisionError", "line 3"},
		{">>> 1 +", "SyntaxError", "line 1"},
	} {
		o := b.python(c.code)
		if o.err == nil || o.err.Name != c.name {
			t.Errorf("error of %q: got %+v, want %s", c.code, o.lines, c.name)
			continue
		}
		contains(t, c.code, o.err.Traceback, c.trace)
	}
}

// F7: a package that a cell installs is found in that cell and later. The first installation
// creates the directory of the user's packages, which Python did not add to its path at the start.
func TestF7PackagesInstalledByACellAreFound(t *testing.T) {
	const install = `
import os, site
def install(name, text):
    os.makedirs(site.getusersitepackages(), exist_ok=True)
    with open(os.path.join(site.getusersitepackages(), name), "w") as f:
        f.write(text)
`
	shows := func(b *testServer, code, want string) {
		t.Helper()
		if got := b.python(code).wantOK(t).text(); got != want {
			t.Errorf("value of %s: got %q, want %q", code, got, want)
		}
	}
	b := newTestServer(t)
	shows(b, install+"install('first.py', 'x = 1')\nimport first\nfirst.x", "1")
	shows(b, "install('second.py', 'x = 2')\nimport second\nsecond.x", "2")

	// The user's packages precede those of the system, as after a start of Python.
	b = newTestServer(t)
	b.python("import sys\nsys.path.append('/x/dist-packages')").wantOK(t)
	b.python("!mkdir -p $(python3 -c 'import site; print(site.getusersitepackages())')").wantOK(t)
	shows(b, "import site\nsys.path.index(site.getusersitepackages()) < min(i for i, p in enumerate(sys.path) if p.endswith('dist-packages'))", "True")

	// If the user's directory is disabled, it is not added.
	b = newTestServer(t)
	b.env["PYTHONNOUSERSITE"] = "1"
	b.python(install + "install('third.py', '')").wantOK(t)
	if o := b.python("import third"); o.err == nil || o.err.Name != "ModuleNotFoundError" {
		t.Errorf("a package in the disabled directory was imported: %+v", o)
	}
}

// F18: a picture that is saved under a file name is shown, as in E2B's kernel. A picture that is
// saved to memory or to an open file is not shown. A figure is not shown either, because plt.show()
// shows it.
func TestF18SavedPicturesAreShown(t *testing.T) {
	needModules(t)
	b := newTestServer(t)
	b.python("from PIL import Image\nimport io, pathlib\nimg = Image.new('RGB', (3, 2), 'red')").wantOK(t)
	for _, c := range []struct {
		code string
		want int
	}{
		{"img.save('a.png')", 1},
		{"img.save(pathlib.Path('b.jpg'))", 1},
		{"img.save('c', 'PNG')\nimg.save('d.png')", 2},
		{"img.resize((6, 4)).save(fp='e.png')", 1},
		{"img.save(io.BytesIO(), 'PNG')", 0},
		{"with open('f.png', 'wb') as f: img.save(f, format='PNG')", 0},
		{"import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.savefig('g.png'); plt.savefig('h.jpg'); plt.close()", 0},
	} {
		o := b.python(c.code).wantOK(t)
		if len(o.results) != c.want {
			t.Errorf("%q: %d results, want %d", c.code, len(o.results), c.want)
		}
		for _, r := range o.results {
			checkPNG(t, r.PNG)
		}
	}
	if o := b.python("img.save('no/such/directory/x.png')"); o.err == nil || o.err.Name != "FileNotFoundError" || len(o.results) != 0 {
		t.Errorf("saving to a missing directory: got %+v", o.lines)
	}
	if o := b.python("[Image.open(n).size for n in ('a.png', 'b.jpg', 'c', 'd.png', 'e.png', 'f.png')]").wantOK(t); o.text() != "[(3, 2), (3, 2), (3, 2), (3, 2), (6, 4), (3, 2)]" {
		t.Errorf("sizes of the saved pictures: got %s", o.text())
	}
}
