package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// TestStartCompilesNoExpressions refuses regular expressions that a package compiles at the start
// of the program, which is also the start of every sandbox. pattern.New compiles at the first use.
func TestStartCompilesNoExpressions(t *testing.T) {
	walk(t, func(name string, data []byte) {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "/testkit/") || strings.Contains(name, "/bench/") {
			return
		}
		for _, position := range compiledAtStart(t, name, data) {
			t.Errorf("%s: an expression is compiled at the start of the program; use pattern.New", position)
		}
	})
}

func TestExpressionsAtStartAreFound(t *testing.T) {
	const file = `package p
import "regexp"
var a = regexp.MustCompile("a")
var b = struct{ x *regexp.Regexp }{regexp.MustCompile("b")}
var later = func() *regexp.Regexp { return regexp.MustCompile("c") }
func f() { regexp.MustCompile("d") }
`
	if got, want := compiledAtStart(t, "p.go", []byte(file)), []string{"p.go:3:9", "p.go:4:36"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// compiledAtStart returns the positions at which a file compiles regular expressions outside all
// functions.
func compiledAtStart(t *testing.T, name string, data []byte) (positions []string) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, data, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl, *ast.FuncLit:
			return false
		case *ast.CallExpr:
			if called := calledFunction(n, "regexp"); called == "MustCompile" || called == "MustCompilePOSIX" {
				positions = append(positions, set.Position(n.Pos()).String())
			}
		}
		return true
	})
	return positions
}
