package interpreter

import (
	"encoding/base64"
	"image/png"
	"strings"
	"testing"
)

// r runs R code.
func (b *testServer) r(code string) outcome {
	b.t.Helper()
	return b.run(payload{"code": code, "language": "R"})
}

func TestRKeepsState(t *testing.T) {
	b := newServerFor(t, "r")
	b.r("x <- 5; f <- function(n) n * 2; setwd('/tmp'); library(stats)").wantOK(t)
	o := b.r("cat(f(x), getwd(), 'it\\'s \u00fc \\\\\n'); message('note'); warning('careful')").wantOK(t)
	if want := "10 /tmp it's ü \\\n"; o.stdout != want || o.count != 2 || len(o.results) > 1 {
		t.Errorf("stdout %q, count %d, want %q", o.stdout, o.count, want)
	}
	contains(t, "stderr", o.stderr, "note\n", "careful")
	if o := b.r("ls(all.names = TRUE)").wantOK(t); o.text() != `[1] "f" "x"` {
		t.Errorf("the global environment: got %q, want what the code made", o.text())
	}
}

// As in a terminal, each visible value is shown, and the last one is the main result.
func TestRShowsVisibleValues(t *testing.T) {
	b := newServerFor(t, "r")
	o := b.r("1:3\ny <- 4\ninvisible(5)\n'text'\nNULL\nc(a = 1)").wantOK(t)
	var texts []string
	for _, r := range o.results {
		texts = append(texts, r.Text)
	}
	if got := strings.Join(texts, "|"); got != "[1] 1 2 3|[1] \"text\"|NULL|a \n1 " || o.text() != "a \n1 " {
		t.Errorf("results: got %q, main %q", got, o.text())
	}
	o = b.r("setClass('P', representation(x = 'numeric')); setMethod('show', 'P', function(object) cat('<P', object@x, '>\n')); new('P', x = 3)").wantOK(t)
	if o.text() != "<P 3 >" {
		t.Errorf("an object with a method of its own: got %q", o.text())
	}
	o = b.r("data.frame(name = c('<a>', 'b'), n = 1:2)").wantOK(t)
	contains(t, "HTML of a data frame", o.results[0].HTML, "<th>name</th><th>n</th>", "<td>&lt;a&gt;</td><td>1</td>")
	contains(t, "text of a data frame", o.text(), "name n", "1  <a> 1")
	if o := b.r("data.frame()").wantOK(t); !strings.Contains(o.text(), "0 columns") {
		t.Errorf("an empty data frame: got %+v", o.lines)
	}
}

// Text and results arrive in the order in which the code made them.
func TestRKeepsOrder(t *testing.T) {
	b := newServerFor(t, "r")
	o := b.r("for (i in 1:20) { cat(i, ''); if (i %% 5 == 0) print(i) }\n1\ncat('between')\n2").wantOK(t)
	var order []string
	for _, l := range o.lines {
		if l.Type == "result" || l.Text == "between" {
			order = append(order, l.Text)
		}
	}
	if got := strings.Join(order, ", "); got != "[1] 1, between, [1] 2" {
		t.Errorf("order: got %s\n%+v", got, o.lines)
	}
}

func TestRReportsErrors(t *testing.T) {
	b := newServerFor(t, "r")
	for code, want := range map[string]string{
		"stop('my reason')": "my reason", "nothing_here": "object 'nothing_here' not found", "a b": "unexpected symbol",
		"f <- function() g(); g <- function() stop('deep'); f()": "deep", "library(not.there)": "no package called",
	} {
		o := b.r(code + "\ncat('never')")
		if o.err == nil || o.err.Name != "ERROR" || !strings.Contains(o.err.Value, want) || strings.Contains(o.stdout, "never") {
			t.Errorf("error of %q: got %+v, want %s", code, o.lines, want)
		}
		if o := b.r("cat('alive')").wantOK(t); o.stdout != "alive" {
			t.Errorf("execution after %q: got %+v", code, o.lines)
		}
	}
	o := b.r("outer <- function() inner(1); inner <- function(x) stop('deep'); outer()")
	if o.err == nil || o.err.Traceback != "deep\nouter()\ninner(1)\nstop(\"deep\")" {
		t.Errorf("traceback: got %+v, want the calls of the code", o.err)
	}
	if o := b.r("1 +"); o.err == nil || !strings.Contains(o.err.Value, "unexpected end of input") {
		t.Errorf("code without an end: got %+v", o.lines)
	}
	if o := b.r("quit(status = 3)"); o.err == nil || o.err.Value != "exit status 3" {
		t.Errorf("quit: got %+v, want its status", o.lines)
	}
}

func TestRPlotsArePictures(t *testing.T) {
	b := newServerFor(t, "r")
	o := b.r("plot(1:10); lines(c(1, 10), c(10, 1)); hist(c(1, 2, 2, 3)); invisible()").wantOK(t)
	if len(o.results) != 2 {
		t.Fatalf("got %d results, want two plots: %+v", len(o.results), o.lines)
	}
	for _, r := range o.results {
		picture, err := png.Decode(base64.NewDecoder(base64.StdEncoding, strings.NewReader(r.PNG)))
		if err != nil || picture.Bounds().Dx() != 840 || *r.IsMain {
			t.Errorf("a plot: %v, main %v", err, *r.IsMain)
		}
	}
	if o := b.r("1").wantOK(t); len(o.results) != 1 {
		t.Errorf("the plots were sent again: %+v", o.lines)
	}
	if o := b.r("list.files()").wantOK(t); o.text() != "character(0)" {
		t.Errorf("plots left files behind: %s", o.text())
	}
}

func TestRSetsVariablesForOneExecution(t *testing.T) {
	b := newServerFor(t, "r")
	b.r("Sys.setenv(A = 'old')").wantOK(t)
	o := b.run(payload{"language": "r", "code": "cat(Sys.getenv('A'), system('echo $B', intern = TRUE))",
		"env_vars": map[string]string{"A": "it's", "B": "b \\ é"}}).wantOK(t)
	if o.stdout != "it's b \\ é" {
		t.Errorf("execution with variables: got %q, stderr %q", o.stdout, o.stderr)
	}
	if o := b.r("cat(Sys.getenv('A'), Sys.getenv('B', 'unset'))").wantOK(t); o.stdout != "old unset" {
		t.Errorf("next execution: got %q", o.stdout)
	}
}

// FuzzQuoteR checks that text is one literal of one line, which says the same.
func FuzzQuoteR(f *testing.F) {
	for _, s := range []string{"", "a b", "it's", `"; quit(); "`, `\`, "\x00\x01\x7f\xff\n", "é世😀"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		literal := quoteR(s)
		body, ok := strings.CutPrefix(literal, `"`)
		body, closed := strings.CutSuffix(body, `"`)
		if !ok || !closed {
			t.Fatalf("%q has no quotes", literal)
		}
		for i := 0; i < len(body); i++ {
			switch c := body[i]; {
			case c == '\\':
				i++ // the next one is a part of the escape
				if i == len(body) {
					t.Fatalf("%q ends within an escape", literal)
				}
			case c == '"' || c < ' ' || c >= 0x7f:
				t.Fatalf("%q has %q outside of an escape", literal, c)
			}
		}
	})
}
