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

// printer converts the events of "go test -json" to the output of "go test": a line for each
// package, and the output of failed tests.
type printer struct {
	out    io.Writer
	failed bool
	// packageEnded receives the tests of a package when it has ended.
	packageEnded func([]entry) error

	packages map[string]*packageOutput
}

// packageOutput is what a package's tests have printed so far.
type packageOutput struct {
	noTest  strings.Builder // output that belongs to no test
	result  string          // the line with its result
	cached  bool
	running map[string]*strings.Builder
	order   []string
	parents map[string]bool
	tests   []entry
}

func newPrinter(out io.Writer, packageEnded func([]entry) error) *printer {
	return &printer{out: out, packageEnded: packageEnded, packages: map[string]*packageOutput{}}
}

// read prints until the stream ends. A line that is not an event is printed unchanged.
func (p *printer) read(stream io.Reader) error {
	lines := bufio.NewReader(stream)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				fmt.Fprintf(p.out, "%s", line)
			} else if err := p.event(e); err != nil {
				return err
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

// event processes one event.
func (p *printer) event(e event) error {
	switch e.Action {
	case "build-output":
		fmt.Fprint(p.out, e.Output)
		return nil
	case "build-fail":
		p.failed = true
		return nil
	}
	if e.Package == "" {
		return nil
	}
	pkg := p.packages[e.Package]
	if pkg == nil {
		pkg = &packageOutput{running: map[string]*strings.Builder{}, parents: map[string]bool{}}
		p.packages[e.Package] = pkg
	}
	if e.Test == "" {
		return p.packageEvent(pkg, e)
	}
	p.testEvent(pkg, e)
	return nil
}

func (p *printer) packageEvent(pkg *packageOutput, e event) error {
	switch e.Action {
	case "output":
		switch {
		case strings.HasPrefix(e.Output, "ok  \t"), strings.HasPrefix(e.Output, "FAIL\t"), strings.HasPrefix(e.Output, "?   \t"):
			pkg.result = e.Output
			pkg.cached = strings.Contains(e.Output, "(cached)")
		default:
			pkg.noTest.WriteString(e.Output)
		}
		return nil
	case "pass", "skip":
	case "fail":
		p.failed = true
		// These tests were running when the program ended.
		for _, name := range pkg.order {
			if output := pkg.running[name]; output != nil {
				fmt.Fprint(p.out, output.String())
			}
		}
		fmt.Fprint(p.out, pkg.noTest.String())
		if pkg.result == "" {
			pkg.result = fmt.Sprintf("FAIL\t%s\n", e.Package)
		}
	default:
		return nil
	}
	fmt.Fprint(p.out, pkg.result)
	delete(p.packages, e.Package)
	if pkg.cached {
		return nil
	}
	return p.packageEnded(pkg.tests)
}

func (p *printer) testEvent(pkg *packageOutput, e event) {
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
		// A parent's time is the time of its subtests, which are listed.
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
