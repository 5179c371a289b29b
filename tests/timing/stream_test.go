package main

import (
	"strings"
	"testing"
)

// printEvents prints the events of some lines, and returns the printer, the tests and the output.
func printEvents(t *testing.T, lines ...string) (p *printer, tests []entry, output string) {
	t.Helper()
	var out strings.Builder
	p = newPrinter(&out, func(ended []entry) error {
		tests = append(tests, ended...)
		return nil
	})
	if err := p.read(strings.NewReader(strings.Join(lines, "\n") + "\n")); err != nil {
		t.Fatal(err)
	}
	return p, tests, out.String()
}

func TestPassingPackagePrintsOneLine(t *testing.T) {
	p, tests, out := printEvents(t,
		`{"Action":"start","Package":"m/a"}`,
		`{"Action":"run","Package":"m/a","Test":"TestX"}`,
		`{"Action":"output","Package":"m/a","Test":"TestX","Output":"    x_test.go:1: said\n"}`,
		`{"Action":"run","Package":"m/a","Test":"TestX/one"}`,
		`{"Action":"pass","Package":"m/a","Test":"TestX/one","Elapsed":1.5}`,
		`{"Action":"pass","Package":"m/a","Test":"TestX","Elapsed":1.5}`,
		`{"Action":"skip","Package":"m/a","Test":"TestY","Elapsed":0}`,
		`{"Action":"output","Package":"m/a","Output":"PASS\n"}`,
		`{"Action":"output","Package":"m/a","Output":"ok  \tm/a\t1.6s\n"}`,
		`{"Action":"pass","Package":"m/a","Elapsed":1.6}`)
	if out != "ok  \tm/a\t1.6s\n" || p.failed {
		t.Errorf("printed %q, failed %v", out, p.failed)
	}
	// The parent's time is that of its subtest, so only the subtest is listed.
	want := []entry{{Kind: kindTest, Package: "m/a", Name: "TestX/one", Wall: 1.5}, {Kind: kindSkipped, Package: "m/a", Name: "TestY"}}
	if len(tests) != 2 || tests[0] != want[0] || tests[1] != want[1] {
		t.Errorf("got the tests %+v, want %+v", tests, want)
	}
}

func TestFailedTestIsPrinted(t *testing.T) {
	p, _, out := printEvents(t,
		`{"Action":"run","Package":"m/a","Test":"TestBad"}`,
		`{"Action":"run","Package":"m/a","Test":"TestGood"}`,
		`{"Action":"output","Package":"m/a","Test":"TestBad","Output":"    x_test.go:1: wrong\n"}`,
		`{"Action":"output","Package":"m/a","Test":"TestGood","Output":"    x_test.go:2: fine\n"}`,
		`{"Action":"pass","Package":"m/a","Test":"TestGood","Elapsed":0}`,
		`{"Action":"output","Package":"m/a","Test":"TestBad","Output":"--- FAIL: TestBad (0.00s)\n"}`,
		`{"Action":"fail","Package":"m/a","Test":"TestBad","Elapsed":0}`,
		`{"Action":"output","Package":"m/a","Output":"FAIL\tm/a\t0.1s\n"}`,
		`{"Action":"fail","Package":"m/a","Elapsed":0.1}`)
	if !p.failed || !strings.Contains(out, "wrong\n--- FAIL: TestBad") || !strings.HasSuffix(out, "FAIL\tm/a\t0.1s\n") || strings.Contains(out, "fine") {
		t.Errorf("printed %q, failed %v", out, p.failed)
	}
}

// TestUnfinishedTestIsPrinted checks a program that ends in the middle of a test, by a panic or its
// time limit, without reporting the test's result.
func TestUnfinishedTestIsPrinted(t *testing.T) {
	p, _, out := printEvents(t,
		`{"Action":"run","Package":"m/a","Test":"TestHangs"}`,
		`{"Action":"output","Package":"m/a","Test":"TestHangs","Output":"panic: test timed out\n"}`,
		`{"Action":"output","Package":"m/a","Output":"exit status 2\n"}`,
		`{"Action":"fail","Package":"m/a","Elapsed":0.1}`)
	if !p.failed || out != "panic: test timed out\nexit status 2\nFAIL\tm/a\n" {
		t.Errorf("printed %q, failed %v", out, p.failed)
	}
}

func TestBuildFailureIsPrinted(t *testing.T) {
	p, _, out := printEvents(t,
		`{"ImportPath":"m/a","Action":"build-output","Output":"a.go:1: undefined: x\n"}`,
		`{"ImportPath":"m/a","Action":"build-fail"}`,
		`no event`)
	if !p.failed || out != "a.go:1: undefined: x\nno event\n" {
		t.Errorf("printed %q, failed %v", out, p.failed)
	}
}

// TestCachedTestsAreNotListed checks that measurements of an earlier run do not count.
func TestCachedTestsAreNotListed(t *testing.T) {
	_, tests, out := printEvents(t,
		`{"Action":"run","Package":"m/a","Test":"TestX"}`,
		`{"Action":"pass","Package":"m/a","Test":"TestX","Elapsed":9}`,
		`{"Action":"output","Package":"m/a","Output":"ok  \tm/a\t(cached)\n"}`,
		`{"Action":"pass","Package":"m/a","Elapsed":0}`)
	if len(tests) != 0 || out != "ok  \tm/a\t(cached)\n" {
		t.Errorf("cached tests: got the tests %+v and printed %q, want no tests", tests, out)
	}
}
