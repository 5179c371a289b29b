package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
)

// F28: while a program uses the whole screen, denials are held back; they are printed when the
// program has left it.
func TestF28DenialsWaitForAlternateScreen(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for name, c := range map[string]struct{ enter, leave []string }{
		"vim":       {[]string{"\x1b[?1049h\x1b[22;0;0t"}, []string{"\x1b[?1049l"}},
		"old xterm": {[]string{"\x1b[?47h"}, []string{"\x1b[?47l"}},
		"in pieces": {[]string{"x\x1b", "[?10", "49h"}, []string{"\x1b[", "?1049", "l$ "}},
		"several":   {[]string{"\x1b[?1;1047;25h"}, []string{"\x1b[?25;1047l"}},
		"reset":     {[]string{"\x1b[?1049h"}, []string{"\x1bc"}},
	} {
		var out, err bytes.Buffer
		a := newApp(Env{Stdin: null, Stdout: &out, Stderr: &err})
		cmd := &crannog.Cmd{}
		(runVerbs{a}).streams(cmd, true)
		b := &blocked{app: a, loud: true}
		printDenial := func(host string) {
			b.print(api.FlowRecord{Host: host, Port: 443, Effect: "deny", Rule: "r", Kind: "connect"})
		}
		write := func(pieces []string) {
			for _, p := range pieces {
				if _, e := cmd.Stdout.Write([]byte(p)); e != nil {
					t.Fatal(e)
				}
			}
		}
		write([]string{"before \x1b[?25l\x1b[1;31m"})
		if printDenial("one.example"); !strings.Contains(err.String(), "one.example") {
			t.Errorf("%s: not printed before the alternate screen: %q", name, err.String())
		}
		write(c.enter)
		if printDenial("two.example"); strings.Contains(err.String(), "two.example") {
			t.Errorf("%s: printed over the alternate screen: %q", name, err.String())
		}
		write(c.leave)
		if !strings.Contains(err.String(), "two.example") {
			t.Errorf("%s: not printed after the alternate screen: %q", name, err.String())
		}
		write(c.enter)
		printDenial("three.example")
		if a.screen.left(); !strings.Contains(err.String(), "three.example") {
			t.Errorf("%s: not printed at the end of the program: %q", name, err.String())
		}
		if want := "before \x1b[?25l\x1b[1;31m" + strings.Join(c.enter, "") + strings.Join(c.leave, "") + strings.Join(c.enter, ""); out.String() != want {
			t.Errorf("%s: output %q, want %q", name, out.String(), want)
		}
	}
}
