package policy_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/filetree/toolfiles"
)

var update = flag.Bool("update", false, "rewrite the generated parts of docs/reference/policy.md")

const pagePath = "../../../docs/reference/policy.md"

// comments returns the comments of all fields in document.go, by type and field name.
func comments(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "document.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if s, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range s.Fields.List {
				out[spec.Name.Name+"."+f.Names[0].Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
			}
		}
		return true
	})
	return out
}

// rows writes a list entry for each field of a type, followed by the fields inside it.
func rows(t *testing.T, of reflect.Type, path string, docs map[string]string, out *strings.Builder) {
	t.Helper()
	for f := range of.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if path != "" {
			name = path + "." + name
		}
		doc := docs[of.Name()+"."+f.Name]
		if doc == "" {
			t.Errorf("%s.%s has no comment", of.Name(), f.Name)
		}
		kind, inner, label := f.Type, f.Type, ""
		if kind.Kind() == reflect.Pointer {
			kind, inner = kind.Elem(), kind.Elem()
		}
		switch {
		case kind == reflect.TypeFor[policy.Duration]():
			label = "duration"
		case kind == reflect.TypeFor[policy.Ports]():
			label = "list of ports"
		case kind.Kind() == reflect.Slice && kind.Elem().Kind() == reflect.Struct:
			label, inner, name = "list", kind.Elem(), name+"[]"
		case kind.Kind() == reflect.Slice:
			label = "list of texts"
		case kind.Kind() == reflect.Struct:
			label = "fields"
		case kind.Kind() == reflect.Bool:
			label = "true or false"
		case kind.Kind() == reflect.Int || kind.Kind() == reflect.Int64:
			label = "number"
		default:
			label = "text"
		}
		writeWrapped(out, fmt.Sprintf("- `%s` (%s): %s", name, label, doc))
		if inner.Kind() == reflect.Struct && label != "duration" {
			rows(t, inner, name, docs, out)
		}
	}
}

// levelRows returns a table of the settings of all levels. Settings that are too wide for the table
// follow as lists.
func levelRows(t *testing.T) string {
	t.Helper()
	docs := map[string]map[string]string{}
	var order []string
	for _, name := range policy.Levels() {
		d, err := policy.Level(name)
		if err != nil {
			t.Fatal(err)
		}
		docs[name] = map[string]string{}
		eachSetting(reflect.ValueOf(d), "", func(field, value string) {
			if name == "strict" {
				order = append(order, field)
			}
			docs[name][field] = value
		})
	}
	var table, lists strings.Builder
	table.WriteString("| field | strict | standard | light | minimal |\n|---|---|---|---|---|\n")
	for _, field := range order {
		if field == "policy" || field == "name" || field == "level" {
			continue
		}
		row, list := "| `"+field+"` |", "\n`"+field+"`:\n\n"
		for _, name := range policy.Levels() {
			v := docs[name][field]
			if v == "" {
				v = "none"
			}
			row += " " + v + " |"
			list += "- " + name + ": " + v + "\n"
		}
		if len(row) <= widestRow {
			table.WriteString(row + "\n")
			continue
		}
		for line := range strings.Lines(list) {
			writeWrapped(&lists, strings.TrimSuffix(line, "\n"))
		}
	}
	return table.String() + lists.String()
}

// widestRow is the maximum width of a row of a table on the page, and widestLine that of other
// text.
const widestRow, widestLine = 140, 100

// writeWrapped writes a paragraph or an entry of a list, whose further lines are indented.
func writeWrapped(out *strings.Builder, text string) {
	width := 0
	for i, word := range strings.Split(text, " ") {
		switch {
		case i == 0:
		case width+1+len(word) > widestLine:
			out.WriteString("\n  ")
			width = 2
		default:
			out.WriteByte(' ')
			width++
		}
		out.WriteString(word)
		width += len(word)
	}
	out.WriteByte('\n')
}

func eachSetting(v reflect.Value, path string, each func(field, value string)) {
	for i := range v.NumField() {
		f, value := v.Type().Field(i), v.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if path != "" {
			name = path + "." + name
		}
		switch {
		case value.Kind() == reflect.Struct:
			eachSetting(value, name, each)
		case value.Kind() == reflect.Pointer && !value.IsNil():
			each(name, fmt.Sprint(value.Elem()))
		case value.Kind() == reflect.Slice:
			if list, ok := value.Interface().([]string); ok && len(list) > 0 {
				each(name, shortened(list))
			}
		case !value.IsZero():
			each(name, fmt.Sprint(value))
		}
	}
}

// shortened formats a list of patterns. It replaces those of the catalogue by the name of their
// list.
func shortened(list []string) string {
	var words []string
	for _, known := range []struct {
		name    string
		entries []toolfiles.Entry
	}{{"credentials", toolfiles.Credentials()}, {"settings", toolfiles.Settings()}, {"suspects", toolfiles.Suspects()}} {
		globs := toolfiles.Globs(known.entries)
		if !slices.ContainsFunc(globs, func(g string) bool { return !slices.Contains(list, g) }) {
			words = append(words, "["+known.name+"](tool-files.md#"+known.name+")")
			list = slices.DeleteFunc(slices.Clone(list), func(g string) bool { return slices.Contains(globs, g) })
		}
	}
	if len(list) > 0 {
		words = append(words, "`"+strings.Join(list, "` `")+"`")
	}
	return strings.Join(words, " ")
}

func TestReferencePageIsUpToDate(t *testing.T) {
	b, err := os.ReadFile(pagePath)
	if err != nil {
		t.Fatal(err)
	}
	var fields strings.Builder
	docs := comments(t)
	rows(t, reflect.TypeFor[policy.Document](), "", docs, &fields)
	text := string(b)
	for name, body := range map[string]string{"fields": fields.String(), "levels": levelRows(t)} {
		begin, end := "<!-- "+name+": generated -->\n", "<!-- end of "+name+" -->"
		before, rest, ok := strings.Cut(text, begin)
		_, after, closed := strings.Cut(rest, end)
		if !ok || !closed {
			t.Fatalf("the page has no markers for %s", name)
		}
		text = before + begin + body + end + after
	}
	if *update {
		if err := os.WriteFile(pagePath, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if text != string(b) {
		t.Error("docs/reference/policy.md is stale; run go test ./internal/egress/policy -update")
	}
}

// The examples on the page must work as described.
func TestReferencePageExamples(t *testing.T) {
	b, err := os.ReadFile(pagePath)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "```yaml\npolicy: v1")
	text, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("the page has no policy document")
	}
	d, err := policy.Parse([]byte("policy: v1" + text))
	if err != nil {
		t.Fatal(err)
	}
	p := compile(t, ofTask(d))
	_, rest, _ = strings.Cut(string(b), "```yaml\ncases:")
	cases, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("the page has no cases")
	}
	results, err := policy.RunCases(p, []byte("cases:"+cases))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if !r.OK {
			t.Errorf("case %+v: got %+v", r.Case, r.Got)
		}
	}
}
