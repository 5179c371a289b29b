package archtest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the list of folders in docs/internals/architecture.md")

const module = "github.com/crannog/crannog"

// maxLines is the maximum length of a hand-written file.
const maxLines = 500

// listedPackage is a package in the output of go list.
type listedPackage struct {
	ImportPath, Dir, Doc string
	Imports              []string
	GoFiles              []string
}

// packages lists all packages of the repository that have files other than tests.
func packages(t *testing.T) []listedPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Doc,Imports,GoFiles", "./...")
	cmd.Dir = "../../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []listedPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if len(p.GoFiles) > 0 {
			all = append(all, p)
		}
	}
}

// folderIndex returns the index in Folders of the folder that a package belongs to: the
// longest path that the package's path begins with. It returns -1 if there is none.
func folderIndex(importPath string) int {
	path := strings.TrimPrefix(strings.TrimPrefix(importPath, module), "/")
	found, length := -1, -1
	for i, f := range Folders {
		if (path == f.Path || f.Path != "" && strings.HasPrefix(path, f.Path+"/")) && len(f.Path) > length {
			found, length = i, len(f.Path)
		}
	}
	return found
}

func TestImportsOnlyDownward(t *testing.T) {
	used := map[int]bool{}
	for _, p := range packages(t) {
		at := folderIndex(p.ImportPath)
		if at < 0 {
			t.Errorf("%s is in none of Folders", p.ImportPath)
			continue
		}
		used[at] = true
		for _, i := range p.Imports {
			if (i == module || strings.HasPrefix(i, module+"/")) && folderIndex(i) < at {
				t.Errorf("%s imports %s, which is above it", p.ImportPath, i)
			}
		}
	}
	for i, f := range Folders {
		if !used[i] {
			t.Errorf("%s is in Folders and has no package", f.Path)
		}
	}
}

// Only the engine may import gVisor, so that its types do not spread. The exceptions are the
// network attachment, which uses gVisor's network stack, and the peer in the attachment's tests.
func TestOnlyTheEngineKnowsGVisor(t *testing.T) {
	stack := []string{"gvisor.dev/gvisor/pkg/tcpip", "gvisor.dev/gvisor/pkg/buffer", "gvisor.dev/gvisor/pkg/waiter"}
	for _, p := range packages(t) {
		if strings.HasPrefix(p.ImportPath, module+"/internal/engine/gvisor") {
			continue
		}
		for _, i := range p.Imports {
			allowed := (p.ImportPath == module+"/internal/egress/attachment" || p.ImportPath == module+"/internal/egress/attachment/attachmenttest") &&
				slices.ContainsFunc(stack, func(s string) bool { return i == s || strings.HasPrefix(i, s+"/") })
			if strings.HasPrefix(i, "gvisor.dev/") && !allowed {
				t.Errorf("%s imports %s", p.ImportPath, i)
			}
		}
	}
}

// engineNames matches names that belong to one engine, to its files, or to the descriptors that it
// passes to its guest. Code for all engines that uses such a name would be wrong for other engines.
var engineNames = regexp.MustCompile(`(?i)gvisor|runsc|systrap|checkpoint\.img|pages(_meta)?\.img|relayport|channelf[dl]|becomesyscall`)

// engineNamesIn maps the files whose code may use such a name to the reason.
var engineNamesIn = map[string]string{
	"internal/engine/gvisor/":               "it is the engine",
	"internal/server/":                      "it registers the engine",
	"internal/engine/jail/setup/":           "a jail's first process becomes the guest, and passes it a socket at this descriptor",
	"internal/engine/microvm/machine/":      "a machine's first process becomes the guest, and passes it a port at this descriptor",
	"internal/engine/docker/runtime.go":     "a daemon may have a runtime of that name",
	"internal/engine/docker/dockertest/":    "a daemon of the tests has a runtime of that name",
	"cmd/crannog-runtime/":                  "it is the engine's program",
	"bench/":                                "it measures the engine beside others",
	"internal/egress/attachment/":           "it uses the network stack as a library",
	"internal/testkit/archtest/archtest.go": "it describes a folder",
	"internal/testkit/servetest/cleanup.go": "a real server runs this engine, so the check looks for its leftovers",
	"internal/store/states.go":              "rows from before engines had names belong to this engine",
	"internal/cli/engines.go":               "an example of the help text",
	"internal/guest/guestboot/":             "it owns the descriptors that an engine may pass to its guest",
	"internal/guest/guestmain/guestmain.go": "the guest checks whether the engine passed it a channel",
	"internal/guest/guestmain/names.go":     "the guest uses the system call that sets the kernel's host name",
	"internal/guest/guestmain/relay.go":     "the guest uses the channel that the engine passed to it",
	"internal/guest/guestmain/events.go":    "the file by which the engine's kernel announces a restore; absent elsewhere",
}

// Code for all engines names no engine, neither in identifiers nor in strings.
func TestNeutralCodeNamesNoEngine(t *testing.T) {
	used := map[string]bool{}
	files := token.NewFileSet()
	for _, p := range packages(t) {
		for _, name := range p.GoFiles {
			path := filepath.Join(p.Dir, name)
			rel := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/") + "/" + name
			excused := ""
			for prefix := range engineNamesIn {
				if strings.HasPrefix(rel, prefix) {
					excused = prefix
				}
			}
			parsed, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				text := ""
				switch n := n.(type) {
				case *ast.Ident:
					text = n.Name
				case *ast.BasicLit:
					text = n.Value
				}
				if !engineNames.MatchString(text) {
					return true
				}
				if used[excused] = true; excused == "" {
					t.Errorf("%s: %s names an engine", files.Position(n.Pos()), text)
				}
				return true
			})
		}
	}
	for prefix := range engineNamesIn {
		if !used[prefix] {
			t.Errorf("%s is in engineNamesIn and names no engine", prefix)
		}
	}
}

// Every sandbox needs memory for the guest, and several times for the program for gVisor, so these
// programs must not link large dependencies.
func TestSandboxProgramsHaveFewDependencies(t *testing.T) {
	heavyModules := []string{"modernc.org/", "github.com/danielgtaylor/", "github.com/spf13/", module + "/internal/sandbox", module + "/internal/server"}
	for program, alsoHeavy := range map[string][]string{
		"crannog-guest":   {"gvisor.dev/"},
		"crannog-runtime": {"gvisor.dev/gvisor/runsc/cli/maincli", "connectrpc.com/", module + "/internal/guest/gen/", module + "/internal/host/embedded/runtimebin"},
	} {
		cmd := exec.Command("go", "list", "-deps", "./cmd/"+program)
		cmd.Dir = "../../.."
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for dep := range strings.Lines(string(out)) {
			dep = strings.TrimSpace(dep)
			for _, h := range slices.Concat(heavyModules, alsoHeavy) {
				if h = strings.TrimSuffix(h, "/"); dep == h || strings.HasPrefix(dep, h+"/") {
					t.Errorf("%s links %s", program, dep)
				}
			}
		}
	}
}

func TestEveryPackageHasComment(t *testing.T) {
	for _, p := range packages(t) {
		if p.Doc == "" {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
		if banned := regexp.MustCompile(`/(util|utils|common|helpers?|manager|misc|shared|base|core)$`); banned.MatchString(p.ImportPath) {
			t.Errorf("%s: the name says nothing", p.ImportPath)
		}
	}
}

func TestFilesAreShort(t *testing.T) {
	walk(t, func(path string, data []byte) {
		if !slices.Contains([]string{".go", ".ts", ".mjs", ".js", ".py", ".sh"}, filepath.Ext(path)) || generated(data) {
			return
		}
		if n := bytes.Count(data, []byte("\n")); n > maxLines {
			t.Errorf("%s has %d lines, above %d", path, n, maxLines)
		}
	})
}

func TestNoReplaceDirective(t *testing.T) {
	data, err := os.ReadFile("../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if regexp.MustCompile(`(?m)^\s*replace\b`).Match(data) {
		t.Error("go.mod replaces a module, which go install refuses")
	}
}

// Every promise in docs/reference/promises.md has its own number and a test that names it: "P7"
// anywhere in the comments of a test file counts.
func TestPromisesAreTested(t *testing.T) {
	doc, err := os.Open("../../../docs/reference/promises.md")
	if err != nil {
		t.Fatal(err)
	}
	defer doc.Close()
	proved := provedPromises(t)
	listed := map[string]bool{}
	for lines := bufio.NewScanner(doc); lines.Scan(); {
		m := regexp.MustCompile(`^- \*\*(P\d+)\*\*:`).FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		if listed[m[1]] {
			t.Errorf("two promises are %s", m[1])
		}
		listed[m[1]] = true
		if !proved[m[1]] {
			t.Errorf("%s has no test that names it", m[1])
		}
	}
	if len(listed) == 0 {
		t.Error("no promise found")
	}
}

// provedPromises returns the promises that a comment of a test names.
func provedPromises(t *testing.T) map[string]bool {
	t.Helper()
	number := regexp.MustCompile(`\bP\d+\b`)
	proved := map[string]bool{}
	walk(t, func(path string, data []byte) {
		switch {
		case strings.HasSuffix(path, "_test.go"), strings.Contains(path, "enginetest/") && strings.HasSuffix(path, ".go"):
			f, err := parser.ParseFile(token.NewFileSet(), path, data, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range f.Comments {
				for _, p := range number.FindAllString(c.Text(), -1) {
					proved[p] = true
				}
			}
		case strings.HasSuffix(path, ".txtar"), strings.HasSuffix(path, ".test.mjs"):
			for line := range strings.Lines(string(data)) {
				if trimmed := strings.TrimSpace(line); strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, "//") {
					for _, p := range number.FindAllString(trimmed, -1) {
						proved[p] = true
					}
				}
			}
		}
	})
	return proved
}

// begin and end enclose the list of folders in the architecture document.
const begin, end = "<!-- layers -->", "<!-- /layers -->"

func TestArchitectureDocument(t *testing.T) {
	const path = "../../../docs/internals/architecture.md"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no %s … %s", path, begin, end)
	}
	want := before + begin + "\n" + folders(packages(t)) + end + after
	if want == string(data) {
		return
	}
	if !*update {
		t.Fatalf("the list of folders in %s is stale; run: go test ./internal/testkit/archtest -update", path)
	}
	if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// folders lists the folders and their packages, highest folder first.
func folders(all []listedPackage) string {
	var b strings.Builder
	for i, f := range Folders {
		var names []string
		for _, p := range all {
			if folderIndex(p.ImportPath) != i {
				continue
			}
			if name := strings.Trim(strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/"+f.Path), "/"); name != "" && f.Path != "" {
				names = append(names, name)
			}
		}
		name := "`" + f.Path + "`"
		if f.Path == "" {
			name = "`crannog` (the root)"
		}
		entry := "- " + name + ": " + f.Owns + "."
		if len(names) > 0 {
			entry += " Packages: " + strings.Join(names, ", ") + "."
		}
		wrap(&b, entry)
	}
	return b.String()
}

// wrap writes an entry of a list in lines of at most 100 columns.
func wrap(b *strings.Builder, entry string) {
	const widest = 100
	width := 0
	for i, word := range strings.Split(entry, " ") {
		switch {
		case i == 0:
		case width+1+len(word) > widest:
			b.WriteString("\n  ")
			width = 2
		default:
			b.WriteByte(' ')
			width++
		}
		b.WriteString(word)
		width += len(word)
	}
	b.WriteByte('\n')
}

// generated reports whether a file was written by a program.
func generated(data []byte) bool {
	return regexp.MustCompile(`(?m)^(//|#) Code generated .* DO NOT EDIT\.$`).Match(data)
}

// walk visits the regular files of the repository, without build output and dependencies.
func walk(t *testing.T, visit func(path string, data []byte)) {
	t.Helper()
	err := filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name == "node_modules" || name == ".git" || name == "bin" || path == "../../../console/gen" {
				return fs.SkipDir
			}
			return nil
		}
		if d.Type().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			visit(path, data)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
