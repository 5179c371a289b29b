package compat_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// option is a flag of a command in its help.
type option struct {
	Name      string `json:"name"`
	Shorthand string `json:"shorthand,omitempty"`
	Value     bool   `json:"value,omitempty"`
	Default   string `json:"default,omitempty"`
}

var (
	flagLine    = regexp.MustCompile(`(?m)^ +(?:-(\w), )?--([\w-]+)(?: (\S+))?  +(.*)$`)
	defaultText = regexp.MustCompile(`\(default "?(.*?)"?\)$`)
	verbLine    = regexp.MustCompile(`(?m)^  (\w[\w-]*)  +`)
	verbs       = regexp.MustCompile(`(?ms)^(?:Available Commands|Run):\n(.*?)(?:\n\nFlags:|\z)`)
)

// options returns the flags of all commands, by the words after crannog.
func options(t *testing.T, run program) map[string][]option {
	found := map[string][]option{}
	var visit func(path ...string)
	visit = func(path ...string) {
		code, help, stderr := run(t, append(slices.Clone(path), "--help")...)
		if code != 0 {
			t.Fatalf("%q --help: %d %s", path, code, stderr)
		}
		list := []option{}
		for _, m := range flagLine.FindAllStringSubmatch(help, -1) {
			o := option{Name: m[2], Shorthand: m[1], Value: m[3] != ""}
			if d := defaultText.FindStringSubmatch(m[4]); d != nil {
				o.Default = d[1]
			}
			list = append(list, o)
		}
		found[strings.Join(path, " ")] = list
		if sub := verbs.FindStringSubmatch(help); sub != nil {
			for _, m := range verbLine.FindAllStringSubmatch(sub[1], -1) {
				if m[1] != "help" {
					visit(append(slices.Clone(path), m[1])...)
				}
			}
		}
	}
	visit()
	return found
}

// changedDefaults are flags whose default has changed, with the reason, by command and flag.
var changedDefaults = map[string]string{
	"cp --user": "files belong to the sandbox's user, which has no capabilities; it was root",
}

// samples are values of which each flag accepts at least one.
var samples = []string{"1", "1s", "1=1", "standard", "true"}

// P51: every command and flag of the earlier version is accepted, with the same shorthand, with a
// value or without one, and its default is the same.
func TestCommandsAndFlags(t *testing.T) {
	want := golden(t, "commands.json", func(p program) map[string][]option { return options(t, p) })
	got := options(t, current)
	if len(want) < 60 {
		t.Fatalf("testdata lists only %d commands", len(want))
	}
	changed := maps.Clone(changedDefaults)
	for _, verb := range slices.Sorted(maps.Keys(want)) {
		path := strings.Fields(verb)
		if code, _, stderr := current(t, append(slices.Clone(path), "--help")...); code != 0 {
			t.Errorf("crannog %s is gone: %s", verb, stderr)
			continue
		}
		for _, o := range want[verb] {
			if !accepts(t, path, o) {
				t.Errorf("crannog %s --%s (-%s, with a value: %v) is not accepted", verb, o.Name, o.Shorthand, o.Value)
			}
			i := slices.IndexFunc(got[verb], func(g option) bool { return g.Name == o.Name })
			if i < 0 {
				continue // accepted, but no longer in the help
			}
			g := got[verb][i]
			if why := changedDefaults[verb+" --"+o.Name]; why != "" && g.Default != o.Default {
				delete(changed, verb+" --"+o.Name)
				g.Default = o.Default
			}
			if g != o {
				t.Errorf("crannog %s: the flag was %+v and is %+v", verb, o, g)
			}
		}
	}
	for name := range changed {
		t.Errorf("%s: the default has not changed; remove the exception", name)
	}
}

// accepts reports whether a command accepts a flag. --help comes last, so that the command does
// nothing. The value is in one word with its flag, because a separate word could be the command
// that a sandbox is to run.
func accepts(t *testing.T, path []string, o option) bool {
	t.Helper()
	forms := []string{"--" + o.Name + "="}
	if o.Shorthand != "" {
		forms = append(forms, "-"+o.Shorthand)
	}
	values := []string{"true"}
	if o.Value {
		values = samples
	}
	for _, form := range forms {
		if !slices.ContainsFunc(values, func(v string) bool {
			if !o.Value && !strings.HasPrefix(form, "--") {
				v = ""
			}
			code, _, _ := current(t, append(slices.Clone(path), form+v, "--help")...)
			return code == 0
		}) {
			return false
		}
	}
	return true
}

// TestAcceptsDetectsUnknownFlags is the control of TestCommandsAndFlags.
func TestAcceptsDetectsUnknownFlags(t *testing.T) {
	for _, o := range []option{
		{Name: "no-such-flag"}, {Name: "memory", Shorthand: "Z", Value: true}, {Name: "detach", Shorthand: "Z"},
	} {
		if accepts(t, []string{"run"}, o) {
			t.Errorf("the unknown flag %+v is accepted", o)
		}
	}
	for _, o := range []option{{Name: "memory", Value: true}, {Name: "detach", Shorthand: "d"}} {
		if !accepts(t, []string{"run"}, o) {
			t.Errorf("the known flag %+v is not accepted", o)
		}
	}
}
