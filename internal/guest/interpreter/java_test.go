package interpreter

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// java runs Java code.
func (b *testServer) java(code string) outcome {
	b.t.Helper()
	return b.run(payload{"code": code, "language": "java"})
}

func TestJavaKeepsState(t *testing.T) {
	b := newServerFor(t, "java")
	b.java("int x = 5;\nint twice(int n) { return 2 * n; }\nrecord Point(int x, int y) {}\nimport java.time.Duration;").wantOK(t)
	o := b.java(`System.out.print("no line end"); System.out.println(" ü " + twice(x)); System.err.println("err");
for (int i = 0; i < 2; i++) {
	System.out.println(new Point(i, x));
}
List.of(1, 2).stream().map(n -> n + 1).collect(Collectors.toList())`).wantOK(t)
	want := "no line end ü 10\nPoint[x=0, y=5]\nPoint[x=1, y=5]\n"
	if o.stdout != want || o.stderr != "err\n" || o.count != 2 || o.text() != "[2, 3]" {
		t.Errorf("stdout %q, stderr %q, count %d, text %q", o.stdout, o.stderr, o.count, o.text())
	}
}

func TestJavaShowsValues(t *testing.T) {
	b := newServerFor(t, "java")
	for code, want := range map[string]string{
		"1 + 2": "3", `"a\"b\n" + "c"`: "a\"b\nc", "int y = 7;": "", "int z = 8; z": "8", "new int[]{1, 2}": "int[2] { 1, 2 }",
		"null": "null", "int w = 1; w = 3": "", `"😀"`: "😀", "System.out.println()": "", "// nothing": "", "": "",
	} {
		o := b.java(code).wantOK(t)
		if o.text() != want {
			t.Errorf("value of %s: got %q, want %q", code, o.text(), want)
		}
	}
}

func TestJavaReportsErrors(t *testing.T) {
	b := newServerFor(t, "java")
	for code, want := range map[string][2]string{
		`throw new IllegalStateException("my reason");`: {"java.lang.IllegalStateException", "my reason"},
		"int[] a = {}; a[3]":                            {"java.lang.ArrayIndexOutOfBoundsException", "Index 3"},
		"int n = \"text\";":                             {"CompilationError", "incompatible types"},
		"nothingHere":                                   {"CompilationError", "cannot find symbol"},
		"for (int i = 0; i < 3; i++) {":                 {"CompilationError", "reached end of file"},
	} {
		o := b.java("System.out.println(\"before\");\n" + code)
		if o.err == nil || o.err.Name != want[0] || !strings.Contains(o.err.Value, want[1]) || o.stdout != "before\n" {
			t.Errorf("error of %q: got %+v, want %s", code, o.lines, want)
		}
	}
	o := b.java("void f() { throw new RuntimeException(\"deep\"); }\nf();\nSystem.out.println(\"never\");")
	if o.err == nil || o.stdout != "" {
		t.Fatalf("got %+v, want an error and nothing after it", o.lines)
	}
	contains(t, "traceback", o.err.Traceback, "java.lang.RuntimeException: deep", "at ", ".f(")
	if o := b.java("System.exit(3)"); o.err == nil || o.err.Value != "exit status 3" {
		t.Errorf("exit: got %+v, want its status", o.lines)
	}
}

// Java cannot change its environment, so variables of a request are properties, as in E2B.
func TestJavaSetsPropertiesForOneExecution(t *testing.T) {
	b := newServerFor(t, "java")
	b.java(`System.setProperty("A", "old");`).wantOK(t)
	o := b.run(payload{"language": "java", "code": `System.getProperty("A") + System.getProperty("B") + System.getenv("HOME")`,
		"env_vars": map[string]string{"A": "it's", "B": " é "}}).wantOK(t)
	if o.text() != "it's é "+b.home {
		t.Errorf("execution with variables: got %q", o.text())
	}
	if o := b.java(`System.getProperty("A") + System.getProperty("B")`).wantOK(t); o.text() != "oldnull" {
		t.Errorf("next execution: got %q", o.text())
	}
}

// A runtime without a compiler is named as what is missing.
func TestJavaNeedsDevelopmentKit(t *testing.T) {
	b := newTestServer(t)
	dir := t.TempDir()
	if err := os.Symlink("/usr/bin/true", filepath.Join(dir, "java")); err != nil {
		t.Fatal(err)
	}
	b.env["PATH"] = dir
	status, text := b.call("POST", "/execute", payload{"code": "1", "language": "java"})
	if status != 400 && status != 501 || !strings.Contains(text, "cannot run java: there is no jshell in") {
		t.Errorf("java without jshell: got %d %s", status, text)
	}
}
