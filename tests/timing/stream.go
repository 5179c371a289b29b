package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is one line of "go test -json".
type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
}

// printer turns the events of "go test -json" back into what "go test" prints:
// a line for each package, and the output of what fails.
type printer struct {
	out    io.Writer
	failed bool
	tests  []entry

	packages map[string]*packageOutput
}

// packageOutput is what a package's tests have printed so far.
type packageOutput struct {
	own     strings.Builder // printed by no test
	result  string          // the line that tells how it ended
	cached  bool
	running map[string]*strings.Builder
	order   []string
	parents map[string]bool
	tests   []entry
}

func newPrinter(out io.Writer) *printer {
	return &printer{out: out, packages: map[string]*packageOutput{}}
}

// read prints until the stream ends. A line that is no event is printed as it
// is.
func (p *printer) read(stream io.Reader) error {
	lines := bufio.NewReader(stream)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				fmt.Fprintf(p.out, "%s", line)
			} else {
				p.event(e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (p *printer) event(e event) {
	switch e.Action {
	case "build-output":
		fmt.Fprint(p.out, e.Output)
		return
	case "build-fail":
		p.failed = true
		return
	}
	if e.Package == "" {
		return
	}
	pkg := p.packages[e.Package]
	if pkg == nil {
		pkg = &packageOutput{running: map[string]*strings.Builder{}, parents: map[string]bool{}}
		p.packages[e.Package] = pkg
	}
	if e.Test == "" {
		p.ofPackage(pkg, e)
		return
	}
	p.ofTest(pkg, e)
}

func (p *printer) ofPackage(pkg *packageOutput, e event) {
	switch e.Action {
	case "output":
		switch {
		case strings.HasPrefix(e.Output, "ok  \t"), strings.HasPrefix(e.Output, "FAIL\t"), strings.HasPrefix(e.Output, "?   \t"):
			pkg.result = e.Output
			pkg.cached = strings.Contains(e.Output, "(cached)")
		default:
			pkg.own.WriteString(e.Output)
		}
	case "pass", "skip":
		fmt.Fprint(p.out, pkg.result)
		if !pkg.cached {
			p.tests = append(p.tests, pkg.tests...)
		}
		delete(p.packages, e.Package)
	case "fail":
		p.failed = true
		p.tests = append(p.tests, pkg.tests...)
		// What ran when the program ended without a word about it.
		for _, name := range pkg.order {
			if output := pkg.running[name]; output != nil {
				fmt.Fprint(p.out, output.String())
			}
		}
		fmt.Fprint(p.out, pkg.own.String())
		if pkg.result == "" {
			pkg.result = fmt.Sprintf("FAIL\t%s\n", e.Package)
		}
		fmt.Fprint(p.out, pkg.result)
		delete(p.packages, e.Package)
	}
}

func (p *printer) ofTest(pkg *packageOutput, e event) {
	switch e.Action {
	case "run":
		pkg.running[e.Test] = &strings.Builder{}
		pkg.order = append(pkg.order, e.Test)
		if i := strings.LastIndexByte(e.Test, '/'); i >= 0 {
			pkg.parents[e.Test[:i]] = true
		}
	case "output":
		if output := pkg.running[e.Test]; output != nil {
			output.WriteString(e.Output)
		}
	case "pass", "skip", "fail":
		output := pkg.running[e.Test]
		delete(pkg.running, e.Test)
		pkg.order = slices.DeleteFunc(pkg.order, func(name string) bool { return name == e.Test })
		if e.Action == "fail" && output != nil {
			fmt.Fprint(p.out, output.String())
		}
		// A parent's time is that of its subtests.
		if e.Action != "skip" && pkg.parents[e.Test] {
			return
		}
		kind := kindTest
		if e.Action == "skip" {
			kind = kindSkipped
		}
		pkg.tests = append(pkg.tests, entry{Kind: kind, Package: e.Package, Name: e.Test, Wall: e.Elapsed})
	}
}
