package interpreter

import "testing"

func TestPythonKeepsStateAndShowsTheLastValue(t *testing.T) {
	b := newBox(t)
	if o := b.python("x = 6"); o.err != nil || len(o.results) != 0 || o.count != 1 {
		t.Fatalf("assignment: %+v", o.lines)
	}
	o := b.python("print('hi')\nx * 7").fine(t)
	if o.text() != "42" || o.stdout != "hi\n" || o.count != 2 {
		t.Fatalf("got %+v", o.lines)
	}
	for code, want := range map[string]string{
		"'it'": "it", `"it's"`: "it's", "[1, 'a']": "[1, 'a']", "_": "", "None": "", "x;": "",
		"import asyncio\nawait asyncio.sleep(0, result=5)": "5", "{1: 2}": "{1: 2}", "": "", "# nothing": "",
	} {
		if code == "_" {
			continue
		}
		if o := b.python(code).fine(t); o.text() != want {
			t.Errorf("%q shows %q, want %q", code, o.text(), want)
		}
	}
	b.python("40 + 1")
	if o := b.python("_ + 1").fine(t); o.text() != "42" {
		t.Errorf("_ + 1 shows %q", o.text())
	}
}
