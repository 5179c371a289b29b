package interpreter

import (
	"strings"
	"testing"
)

func TestPythonShowsRichFormats(t *testing.T) {
	b := newTestServer(t)
	o := b.python(`from IPython.display import display, HTML, Image, JSON, Markdown, SVG, Latex, Javascript, clear_output
display(HTML('<b>h</b>'), Markdown('*m*'), SVG('<svg/>'), Latex('$l$'), JSON({'a': [1, None]}), Javascript('j()'))
display(Image(b'\x89PNGdata'), Image(b'\xff\xd8data'))
display({'text/plain': 'p', 'application/x-own': {'k': 1}}, raw=True)
clear_output()
class Own:
    def _repr_html_(self): return '<own>'
    def _repr_png_(self): return b'png'
    def _repr_markdown_(self): return None
    def _repr_svg_(self): 1/0
    def __repr__(self): return 'own'
Own()`).wantOK(t)
	if len(o.results) != 10 {
		t.Fatalf("formats: got %d results, want 10: %+v", len(o.results), o.results)
	}
	r := o.results
	for i, got := range []string{r[0].HTML, r[1].Markdown, r[2].SVG, r[3].LaTeX, string(r[4].JSON), r[6].PNG, r[7].JPEG, r[8].Text + string(r[8].Extra), r[9].HTML + r[9].PNG + r[9].Text} {
		want := []string{"<b>h</b>", "*m*", "<svg/>", "$l$", `{"a": [1, null]}`, "iVBOR2RhdGE=", "/9hkYXRh", `p{"application/x-own":{"k": 1}}`, "<own>cG5nown"}[i]
		if strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
			t.Errorf("result %d is %q, want %q", i, got, want)
		}
	}
	if *r[0].IsMain || !*r[9].IsMain {
		t.Error("is_main_result is wrong")
	}
	contains(t, "stderr", o.stderr, "_repr_svg_ failed: ZeroDivisionError")
}

func TestPythonShowsContainersAsJSON(t *testing.T) {
	b := newTestServer(t)
	for code, want := range map[string]string{
		"{'a': 1, 2: [None, True, 1.5]}": `{"a":1,"2":[null,true,1.5]}`, "[float('nan')]": `[null]`,
		"{'o': object()}": "", "(1, 2)": "", "import datetime as d\n[d.date(2024, 1, 2)]": `["2024-01-02"]`,
		"l = []; l.append(l); l": "", "{(1,): 2}": "", "class X(dict): pass\nX(a=1)": "",
	} {
		o := b.python(code).wantOK(t)
		if got := strings.ReplaceAll(string(o.results[0].JSON), " ", ""); got != want {
			t.Errorf("JSON of %s: got %s, want %s", code, got, want)
		}
	}
}

func TestPythonShowsTablesAndPictures(t *testing.T) {
	needModules(t)
	b := newTestServer(t)
	o := b.python(`import pandas as pd
pd.DataFrame({'n': [1, 2], 'f': [1.5, None], 't': pd.to_datetime(['2024-01-02', None]), 's': ['a', None]})`).wantOK(t)
	want := `{"n":[1,2],"f":[1.5,null],"t":["2024-01-02T00:00:00",null],"s":["a",null]}`
	if got := strings.ReplaceAll(string(o.results[0].Data), " ", ""); got != want {
		t.Errorf("data of the table: got %s, want %s", got, want)
	}
	contains(t, "html", o.results[0].HTML, "<table", "1.5")
	contains(t, "text", o.results[0].Text, "n    f")
	o = b.python("from PIL import Image\nimg = Image.new('RGB', (3, 2), 'red')\nimg.show()\nimg").wantOK(t)
	if len(o.results) != 2 {
		t.Fatalf("pictures: got %+v, want 2 results", o.lines)
	}
	checkPNG(t, o.results[0].PNG)
	checkPNG(t, o.results[1].PNG)
}

func TestFiguresAreShownOnce(t *testing.T) {
	needModules(t)
	b := newTestServer(t)
	// The worker's substitute for IPython must not look like a complete IPython to matplotlib.
	b.python("import IPython\nfrom IPython.display import display\nimport matplotlib.pyplot as plt\nf = plt.figure(); plt.close()").wantOK(t)
	for code, want := range map[string]int{
		"plt.plot([1, 2]); None":                                                           1,
		"plt.plot([1, 2])\nplt.show()\nplt.plot([3, 4])\nplt.show()":                       2,
		"f, a = plt.subplots(); a.plot([1, 2])\nf":                                         1,
		"f = plt.figure(); plt.plot([1, 2]); f.show()":                                     1,
		"plt.plot([1, 2]); plt.close()":                                                    0,
		"plt.plot([1, 2])\nplt.savefig('out.png'); plt.close()":                            0,
		"from matplotlib.figure import Figure\nf = Figure(); f.add_subplot().plot([1]); f": 1,
	} {
		n := 0
		for _, r := range b.python(code).wantOK(t).results {
			if r.PNG != "" {
				checkPNG(t, r.PNG)
				n++
			}
		}
		if n != want {
			t.Errorf("%q shows %d pictures, want %d", code, n, want)
		}
	}
	if o := b.python("plt.plot([1, 2])\n1/0"); o.err == nil || len(o.results) != 1 {
		t.Errorf("a figure before an error: %+v", o.err)
	}
}

func TestLargeResultsAreCut(t *testing.T) {
	b := newTestServer(t)
	o := b.python("'x' * 3_000_000").wantOK(t)
	if n := len(o.text()); n > 1<<20+100 {
		t.Errorf("%d bytes of text", n)
	}
	contains(t, "text", o.text()[1<<20:], "characters left out]")
	o = b.python("from IPython.display import HTML, display\ndisplay(HTML('y' * 9_000_000))").wantOK(t)
	if o.results[0].HTML != "" {
		t.Error("html of 9 MB was sent")
	}
	contains(t, "text", o.results[0].Text, "left out, too large: text/html of 9000002 bytes")
	o = b.js("'x'.repeat(3_000_000)").wantOK(t)
	if n := len(o.text()); n > 1<<20+100 {
		t.Errorf("%d bytes of text from JavaScript", n)
	}
}
