package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

// clockBudget is the number of places in the tests of each directory that depend on the machine's
// clock: a sleep, a timer or deadline that does not go through hosttest, or a measured duration.
// The remaining places provoke a timeout, check for a while that an event does not happen, or only
// log. The numbers may only fall.
var clockBudget = map[string]int{
	"../../..":                       1,
	"cmd/crannog":                    2,
	"internal/egress/approval":       1,
	"internal/egress/confine":        1,
	"internal/egress/gateway":        2,
	"internal/egress/proxy":          5,
	"internal/egress/attachment":     15,
	"internal/frontend/console/live": 1,
	"internal/server":                1,
	"internal/frontend/ingress":      1,
	"internal/frontend/e2b":          5,
	"internal/engine/linux/cgroup":   2,
	"internal/engine/enginetest":     3,
	"internal/engine/gvisor":         6,
	"internal/engine/linux/process":  1,
	"internal/guest/guestmain":       2,
	"internal/guest/probe":           2,
	"internal/guest/process":         4,
	"internal/guest/reap":            1,
	"internal/host/memtrim":          2,
	"internal/mcpserver":             1,
	"internal/guest/relay":           8,
	"internal/sandbox/lifecycle":     5,
	"internal/sandbox/changes":       1, // in a synctest bubble
	"internal/sandbox/admission":     1, // in a synctest bubble
	"internal/state/snapshot":        1,
	"internal/audit/ingest":          1,
	"internal/server/standard":       1,
	"internal/store":                 1,
	"tests/abuse":                    11,
	"tests/busy":                     1, // it compares durations of the same run
	"tests/causeway":                 3,
	"tests/crash":                    8,
	"tests/cycles":                   2,
	"tests/record":                   1,
	"tests/unified":                  4,
	"tests/work":                     1,
}

// A test must not fail because of wall time: its deadlines only bound a hang, and the functions of
// hosttest scale them by the speed of the machine. In a synctest bubble time does not pass while
// any goroutine works, so every use of time is allowed there.
func TestDeadlinesOnlyBoundHangs(t *testing.T) {
	found := map[string][]string{}
	walk(t, func(name string, data []byte) {
		dir := strings.TrimPrefix(path.Dir(name), "../../../")
		testSupport := strings.HasSuffix(dir, "internal/engine/enginetest") || strings.HasSuffix(dir, "internal/testkit/servetest")
		if !testSupport && !strings.HasSuffix(name, "_test.go") || strings.HasSuffix(dir, "internal/testkit/hosttest") {
			return
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, data, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if calledFunction(call, "synctest") == "Test" {
				return false
			}
			if waitsByClock(call) {
				found[dir] = append(found[dir], set.Position(call.Pos()).String())
			}
			return true
		})
	})
	for dir, places := range found {
		if limit := clockBudget[dir]; len(places) > limit {
			t.Errorf("%s has %d places that depend on the clock, and may have %d. Use hosttest.Eventually, Late, Deadline or Patience, or a synctest bubble:\n%s",
				dir, len(places), limit, strings.Join(places, "\n"))
		}
	}
	for dir, limit := range clockBudget {
		if n := len(found[dir]); n < limit {
			t.Logf("%s has only %d of %d: the number here can fall", dir, n, limit)
		}
	}
}

// calledFunction returns the name of the function of package pkg that is called, or "".
func calledFunction(call *ast.CallExpr, pkg string) string {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if x, ok := f.X.(*ast.Ident); !ok || x.Name != pkg {
		return ""
	}
	return f.Sel.Name
}

// waitsByClock reports whether a call depends on the machine's clock.
func waitsByClock(call *ast.CallExpr) bool {
	switch calledFunction(call, "time") {
	case "Sleep", "Since":
		return true
	case "After", "AfterFunc", "NewTimer":
		return !scaled(call)
	}
	if name := calledFunction(call, "context"); name == "WithTimeout" || name == "WithDeadline" {
		return !scaled(call)
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains([]string{"SetDeadline", "SetReadDeadline", "SetWriteDeadline"}, f.Sel.Name) && !scaled(call)
}

// scaled reports whether an argument of a call is a duration or a time that hosttest returned, or
// is no time at all.
func scaled(call *ast.CallExpr) (found bool) {
	for _, arg := range call.Args {
		if c, ok := arg.(*ast.CompositeLit); ok && len(c.Elts) == 0 {
			return true // time.Time{} removes a deadline
		}
		ast.Inspect(arg, func(n ast.Node) bool {
			if x, ok := n.(*ast.Ident); ok && x.Name == "hosttest" {
				found = true
			}
			return true
		})
	}
	return found
}
