package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// maxMethods and maxFields are the limits of an object. A larger one has more than one task, and no
// reader can keep it in mind.
const (
	maxMethods = 100
	maxFields  = 20
)

// objectsFile holds the budget of each object that is above a limit: its methods and fields, 0 for
// a number that is within its limit.
const objectsFile = "objects.tsv"

// size is the number of methods and fields of an object, or the budget for them.
type size struct{ methods, fields int }

// allows returns how many methods and fields an object with this budget may have: the limit or the
// budget, whichever is higher.
func (s size) allows() size {
	return size{max(s.methods, maxMethods), max(s.fields, maxFields)}
}

// TestObjectsStaySmall counts the methods and fields of each object. A budget may only fall:
// -update lowers a budget that is far above the count, and never raises one.
func TestObjectsStaySmall(t *testing.T) {
	found := objects(t, "../../..")
	budget := readObjects(t)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		got, limit := found[name], budget[name].allows()
		if got.methods > limit.methods {
			t.Errorf("%s has %d methods, and may have %d: move some to an object with one task", name, got.methods, limit.methods)
		}
		if got.fields > limit.fields {
			t.Errorf("%s has %d fields, and may have %d: move some to an object with one task", name, got.fields, limit.fields)
		}
	}
	lower := lowered(budget, found)
	if !*update {
		for _, name := range slices.Sorted(maps.Keys(budget)) {
			if tooHigh(budget[name], lower[name]) {
				t.Errorf("the budget of %s is too high; run: go test ./internal/testkit/archtest -update", name)
			}
		}
		return
	}
	if maps.Equal(lower, budget) {
		return
	}
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(lower)) {
		fmt.Fprintf(&lines, "%s\t%d\t%d\n", name, lower[name].methods, lower[name].fields)
	}
	if err := os.WriteFile(objectsFile, []byte(lines.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// lowered returns the budgets with each number lowered to the count, or to 0 where the count is
// within the limit. An object that is within both limits needs no budget.
func lowered(budget, found map[string]size) map[string]size {
	lower := map[string]size{}
	for name, b := range budget {
		var l size
		if n := min(b.methods, found[name].methods); n > maxMethods {
			l.methods = n
		}
		if n := min(b.fields, found[name].fields); n > maxFields {
			l.fields = n
		}
		if l != (size{}) {
			lower[name] = l
		}
	}
	return lower
}

// tooHigh reports whether a budget has to be lowered. A budget that is less than a tenth above the
// count may stay, so that two branches that make the same object smaller do not change the same
// line.
func tooHigh(budget, lower size) bool {
	return (budget.methods-lower.methods)*10 > budget.methods || (budget.fields-lower.fields)*10 > budget.fields
}

// readObjects reads the budgets, by directory and name of the type.
func readObjects(t *testing.T) map[string]size {
	t.Helper()
	data, err := os.ReadFile(objectsFile)
	if err != nil {
		t.Fatal(err)
	}
	budget := map[string]size{}
	for line := range strings.Lines(string(data)) {
		words := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(words) != 3 {
			t.Fatalf("%s: the line %q is not a name, a number of methods and a number of fields", objectsFile, line)
		}
		methods, err := strconv.Atoi(words[1])
		if err != nil {
			t.Fatalf("%s: the line %q is not a name, a number of methods and a number of fields", objectsFile, line)
		}
		fields, err := strconv.Atoi(words[2])
		if err != nil {
			t.Fatalf("%s: the line %q is not a name, a number of methods and a number of fields", objectsFile, line)
		}
		budget[words[0]] = size{methods, fields}
	}
	return budget
}

// objects returns the size of each type of the program, by directory and name.
func objects(t *testing.T, root string) map[string]size {
	t.Helper()
	c := counter{methods: map[string]map[string]bool{}, fields: map[string]int{}}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{".git", "node_modules", "bin", "testdata"}, d.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || !d.Type().IsRegular() {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		if ast.IsGenerated(file) {
			return nil
		}
		path, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		c.add(filepath.ToSlash(path), file)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return c.sizes()
}

// counter collects the names of methods instead of counting them, because a method with an
// implementation for each platform counts once.
type counter struct {
	methods map[string]map[string]bool
	fields  map[string]int
}

func (c counter) add(dir string, file *ast.File) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				continue
			}
			name := dir + "." + receiver(d.Recv.List[0].Type)
			if c.methods[name] == nil {
				c.methods[name] = map[string]bool{}
			}
			c.methods[name][d.Name.Name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				typ, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				if s, ok := typ.Type.(*ast.StructType); ok {
					name := dir + "." + typ.Name.Name
					c.fields[name] = max(c.fields[name], countFields(s))
				}
			}
		}
	}
}

func (c counter) sizes() map[string]size {
	all := map[string]size{}
	for name, n := range c.fields {
		all[name] = size{fields: n}
	}
	for name, methods := range c.methods {
		all[name] = size{len(methods), all[name].fields}
	}
	return all
}

// receiver returns the name of a method's type, without pointer and type parameters.
func receiver(typ ast.Expr) string {
	switch x := typ.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.ParenExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}

// countFields returns the number of fields of an object, or 0 for an object without state. A struct
// whose fields are all exported is a message or a list of settings and has no state, so it may be
// as long as what it describes.
func countFields(s *ast.StructType) int {
	fields, hasPrivate := 0, false
	for _, field := range s.Fields.List {
		fields += max(1, len(field.Names)) // an embedded type has no name
		for _, name := range field.Names {
			hasPrivate = hasPrivate || !name.IsExported()
		}
	}
	if !hasPrivate {
		return 0
	}
	return fields
}

// The count has to include every form of method and field, or an object grows unnoticed.
func TestObjectsAreCounted(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", `package p
type Plain struct{ A, B int }
type Object[T any] struct {
	sync.Mutex
	a, b T
	C string
}
func (Object[T]) One() {}
func (o *Object[T]) two() {}
func (o *Object[T]) two() {}
func (Pair[K, V]) One() {}
func Three() {}
`, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	c := counter{methods: map[string]map[string]bool{}, fields: map[string]int{}}
	c.add("d", file)
	want := map[string]size{"d.Plain": {}, "d.Object": {2, 4}, "d.Pair": {1, 0}}
	if got := c.sizes(); !maps.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

func TestObjectBudgetsOnlyFall(t *testing.T) {
	budget := map[string]size{"grew": {120, 25}, "fell": {120, 25}, "fields": {120, 25}, "small": {120, 25}, "gone": {120, 25}}
	found := map[string]size{"grew": {130, 26}, "fell": {110, 26}, "fields": {99, 22}, "small": {100, 20}, "new": {200, 40}}
	want := map[string]size{"grew": {120, 25}, "fell": {110, 25}, "fields": {0, 22}}
	if got := lowered(budget, found); !maps.Equal(got, want) {
		t.Errorf("lowered to %v, want %v", got, want)
	}
	for lower, want := range map[size]bool{{200, 30}: false, {180, 27}: false, {179, 30}: true, {200, 26}: true, {}: true} {
		if got := tooHigh(size{200, 30}, lower); got != want {
			t.Errorf("a budget of 200 and 30 is too high for %v: %v, want %v", lower, got, want)
		}
	}
}
