package images_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// codeInterpreter is the template that E2B's code interpreter requests.
const codeInterpreter = "code-interpreter-v1"

// sums has code that computes 42 in each language, as the last expression.
var sums = map[string]string{
	"python":     "import matplotlib, numpy, pandas, scipy\nint(pandas.Series([6 * 7]).sum())",
	"javascript": "6 * 7",
	"typescript": "const n: number = 6 * 7\nn",
	"r":          "6 * 7",
	"java":       "6 * 7",
	"bash":       "echo $((6 * 7))",
}

// testCodeInterpreter builds the recipe under the name of the code interpreter. Sandboxes that
// request this name then start from the image, and run all languages in it.
func testCodeInterpreter(t *testing.T, m *machine) {
	if got := m.inspect(t); !got.Host || len(got.Versions) != 0 {
		t.Errorf("before the build: got %+v, want the host's template", got)
	}
	m.build(t, codeInterpreter, "code-interpreter")
	if got := m.inspect(t); got.Host || len(got.Versions) != 1 {
		t.Errorf("after the build: got %+v, want one version", got)
	}
	sb, err := servetest.Start(t, program, m.state()).Client(t).Create(t.Context(), crannog.Template(codeInterpreter), crannog.Net("dev"), crannog.Timeout(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	for language, code := range sums {
		var text, failed string
		for event, err := range sb.RunCode(t.Context(), code, crannog.Language(language)) {
			if err != nil {
				t.Fatal(err)
			}
			switch event.Type {
			case "result":
				text += string(event.Result["text"])
			case "stdout", "stderr":
				text += event.Text
			case "error":
				failed = event.Name + ": " + event.Value
			}
		}
		if failed != "" || !strings.Contains(text, "42") {
			t.Errorf("%s: got %q, error %q, want 42", language, text, failed)
		}
	}
	// Java in the image trusts the public roots, and the gateway's certificate because the sandbox has
	// a network.
	const stored = "keytool -list -cacerts -storepass changeit 2>/dev/null"
	if out, err := sb.CommandContext(t.Context(), "sh", "-c", stored+" | grep -c trustedCertEntry; "+stored+" | grep -c ^crannog,").Output(); err != nil || !enoughRoots(string(out)) {
		t.Errorf("Java's trust store: %v, %q, want more than 100 entries, one of them the gateway's", err, out)
	}
	out, err := sb.CommandContext(t.Context(), "sh", "-c", "node --version; sudo id -un; id -un; test ! -e /usr/local/go || echo host").Output()
	if err != nil || !strings.HasPrefix(string(out), "v22.") || !strings.HasSuffix(string(out), "\nroot\nuser\n") {
		t.Errorf("the image's files: %v, %s", err, out)
	}
	if err := sb.Kill(t.Context()); err != nil {
		t.Error(err)
	}
}

// enoughRoots reports whether the output is a number of public roots, and the number 1.
func enoughRoots(out string) bool {
	var roots, own int
	n, err := fmt.Sscan(out, &roots, &own)
	return err == nil && n == 2 && roots > 100 && own == 1
}

// inspected is what inspect says about a template.
type inspected struct {
	Host     bool
	Versions []struct{ Version int }
}

func (m *machine) inspect(t *testing.T) (got inspected) {
	t.Helper()
	out, err := m.run(t, "", "template", "inspect", codeInterpreter)
	if err == nil {
		err = json.Unmarshal([]byte(out), &got)
	}
	if err != nil {
		t.Fatalf("inspect: %v\n%s", err, out)
	}
	return got
}
