package interpreter

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image/png"
	"os/exec"
	"testing"
)

// needModules fails the test if a module is missing, because the test of a figure must draw it.
func needModules(t *testing.T) {
	t.Helper()
	out, err := exec.Command("/usr/bin/python3", "-c", "import matplotlib, pandas, PIL").CombinedOutput()
	if err != nil {
		t.Fatalf("this test needs the Debian packages python3-matplotlib, python3-pandas and python3-pil: %s", out)
	}
}

func TestFiguresAreShownWithData(t *testing.T) {
	needModules(t)
	b := newTestServer(t)
	b.python("import matplotlib.pyplot as plt, datetime").wantOK(t)
	for _, c := range []struct{ name, code, chart string }{
		{"line", `plt.plot([1,2,3],[4,5,6.5],label='a'); plt.title('T'); plt.xlabel('Time (s)'); plt.ylabel('V'); plt.show()`,
			`"elements":[{"label":"a","points":[[1,4],[2,5],[3,6.5]]}]`},
		{"line", `plt.plot([datetime.date(2024,1,1),datetime.date(2024,1,2)],[1,2])
plt.show()`, `"points":[["2024-01-01T00:00:00",1],["2024-01-02T00:00:00",2]]`},
		{"scatter", `plt.scatter([1,2],[3,4],label='g'); plt.show()`, `"elements":[{"label":"g","points":[[1,3],[2,4]]}]`},
		{"bar", `plt.bar(['x','y'],[3,4]); plt.show()`, `"label":"x"`},
		{"bar", `plt.barh(['x','y'],[3,4.5],label='G'); plt.show()`, `{"group":"G","label":"y","value":4.5}`},
		{"pie", `plt.pie([1,3],labels=['p','q']); plt.show()`, `{"angle":90,"label":"p","radius":1}`},
		{"box_and_whisker", `plt.boxplot([[1,2,3,4,30],[2,3,4]], labels=['m','n']); plt.show()`, `"first_quartile":2,"label":"m","max":4,"median":3,"min":1,"outliers":[30],"third_quartile":4`},
		{"superchart", `f, (a, c) = plt.subplots(1, 2); a.plot([1,2]); c.bar(['k'],[1]); plt.show()`, `"type":"bar"`},
	} {
		o := b.python(c.code).wantOK(t)
		if len(o.results) != 1 {
			t.Fatalf("%s: got %d results, want 1: %+v", c.name, len(o.results), o.lines)
		}
		checkPNG(t, o.results[0].PNG)
		var chart map[string]any
		if err := json.Unmarshal(o.results[0].Chart, &chart); err != nil {
			t.Fatalf("%s: chart %q: %v; stderr %s", c.name, o.results[0].Chart, err, o.stderr)
		}
		sorted, _ := json.Marshal(chart)
		if chart["type"] != c.name {
			t.Errorf("%s: got the chart %s", c.name, sorted)
		}
		contains(t, c.name, string(sorted), c.chart)
	}
}

// checkPNG fails the test if data is not a picture in PNG format.
func checkPNG(t *testing.T, data string) {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := png.Decode(bytes.NewReader(raw)); err != nil {
		t.Fatalf("png of %d bytes: %v", len(raw), err)
	}
}

// When matplotlib creates a figure, it looks for IPython and uses more of it than display().
func TestFiguresAfterImportOfDisplayModule(t *testing.T) {
	needModules(t)
	b := newTestServer(t)
	b.python("from IPython.display import display, HTML\nimport matplotlib.pyplot as plt").wantOK(t)
	if o := b.python("fig, ax = plt.subplots(); ax.plot([1, 2]); plt.show()").wantOK(t); len(o.results) != 1 {
		t.Fatalf("figure: got %d results, want 1: %+v", len(o.results), o.lines)
	}
	b.python("ended = []; get_ipython().events.register('post_execute', lambda: ended.append(1))").wantOK(t)
	b.python("from IPython.core.pylabtools import backend2gui").wantOK(t)
	if o := b.python("len(ended)").wantOK(t); o.text() != "2" {
		t.Fatalf("after two cells the function ran %q times", o.text())
	}
}

// F19: computed numbers are rounded. matplotlib stores the shares of a pie in single precision, so
// nine tenths are 323.9999914°. E2B rounds computed values too, and its test expects 324.
func TestF19ComputedNumbersAreRounded(t *testing.T) {
	needModules(t)
	b := newTestServer(t)
	b.python("import matplotlib.pyplot as plt").wantOK(t)
	for _, c := range []struct{ code, chart string }{
		{"fig, ax = plt.subplots()\nax.pie([90, 10], labels=['No', 'No, in blue'], startangle=90)\nplt.show()",
			`"elements":[{"angle":324,"label":"No","radius":1},{"angle":36,"label":"No, in blue","radius":1}]`},
		{"plt.pie([1, 1, 1], counterclock=False); plt.show()", `{"angle":120,"label":"","radius":1},{"angle":120,`},
		{"plt.pie([2, 5], labels=['a', 'b']); plt.show()", `{"angle":102.8571,"label":"a","radius":1},{"angle":257.1429,"label":"b","radius":1}`},
		{"plt.boxplot([[0.1, 0.1 + 0.2, 0.7, 1.1]]); plt.show()", `"first_quartile":0.25,"label":"1","max":1.1,"median":0.5,"min":0.1,"outliers":[],"third_quartile":0.8`},
		// Plotted values are numbers of the code and stay unchanged.
		{"plt.plot([0, 1], [1/3, 123456789.123456789]); plt.show()", `"points":[[0,0.3333333333333333],[1,123456789.12345679]]`},
	} {
		o := b.python(c.code).wantOK(t)
		var chart map[string]any
		if err := json.Unmarshal(o.results[0].Chart, &chart); err != nil {
			t.Fatal(err)
		}
		sorted, _ := json.Marshal(chart)
		contains(t, c.code, string(sorted), c.chart)
	}
}
