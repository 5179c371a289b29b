package drill

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/client"
)

func TestScenariosAreComplete(t *testing.T) {
	all, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]bool{}
	for _, s := range all {
		kinds[s.Kind] = true
		if s.Goal == Received && !strings.Contains(s.Attack, "settings.txt") && !strings.Contains(s.Attack, "token.txt") && len(s.Files) == 0 {
			t.Errorf("%s sends no token", s.Name)
		}
	}
	if len(all) < 40 || len(kinds) < 10 {
		t.Errorf("got %d scenarios of %d kinds, want at least 40 of 10", len(all), len(kinds))
	}
}

func TestParseRefuses(t *testing.T) {
	const good = "name: x\nkind: k\ntitle: t\ndefence: d\ngoal: output\nworks: w\nattack: a\ncontrol: {on: host}\n"
	if _, err := Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{
		"", good + "polcy: x\n", good + "---\nname: y\n", strings.Replace(good, "name: x", "name: ../x", 1),
		strings.Replace(good, "goal: output", "goal: none", 1), strings.Replace(good, "on: host", "on: nowhere", 1),
		strings.Replace(good, "on: host", "on: host, net: open", 1), strings.Replace(good, "attack: a", "attack: ''", 1),
		good + "files: {../x: y}\n", strings.Replace(good, "works: w\n", "", 1), strings.Replace(good, "works: w", "works: echo {{token}}", 1),
	} {
		if _, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestUserScenarios(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Load(dir); !errors.Is(err, ErrOptions) {
		t.Errorf("an empty directory: %v, want ErrOptions", err)
	}
	const text = "name: mine\nkind: k\ntitle: t\ndefence: d\ngoal: output\nworks: w\nattack: a\ncontrol: {on: host}\n"
	write("mine.yaml", text)
	all, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	picked, err := Select(all, []string{"min?"})
	if err != nil || len(picked) != 1 || !picked[0].FromUser {
		t.Errorf("got %+v %v, want the user's scenario", picked, err)
	}
	if _, err := Select(all, []string{"absent"}); !errors.Is(err, ErrOptions) {
		t.Errorf("a pattern without a match: %v, want ErrOptions", err)
	}
	write("dns-label.yaml", strings.Replace(text, "mine", "dns-label", 1))
	if _, err := Load(dir); !errors.Is(err, ErrScenario) {
		t.Errorf("a name that is taken: %v, want ErrScenario", err)
	}
}

func TestContainsToken(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	if err := errors.Join(os.WriteFile(outside, []byte("token"), 0o600), os.Symlink(outside, filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	if found, err := containsToken(dir, "token"); found || err != nil {
		t.Errorf("a link out: %v %v, want that it is not followed", found, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("a token"), 0o600); err != nil {
		t.Fatal(err)
	}
	if found, err := containsToken(dir, "token"); !found || err != nil {
		t.Errorf("got %v %v, want the token found", found, err)
	}
}

func TestJUnitCountsEachVerdict(t *testing.T) {
	var r Report
	for _, v := range []Verdict{Held, Broken, Unproven, NotRun} {
		r.add(Result{Engine: "e", Verdict: v, Reason: "<why>"})
	}
	if r.Passed() {
		t.Error("a report with a broken defence passed")
	}
	var b bytes.Buffer
	if err := WriteJUnit(&b, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`tests="4" failures="1" errors="1" skipped="1"`, "<failure", "<error", "<skipped", "&lt;why&gt;"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s lacks %q", b.String(), want)
		}
	}
}

// The test's process has no descriptors of a parent's namespaces, as somebody who passes --inside by
// hand. tests/drill shows that a drill started by Start is separate.
func TestSeparateRefusesHost(t *testing.T) {
	if err := Separate(); !errors.Is(err, ErrNotSeparate) {
		t.Errorf("without descriptors: %v, want ErrNotSeparate", err)
	}
}

// An attack that ends its sandbox has failed only if what it looks at is outside.
func TestAttackEndsItsSandbox(t *testing.T) {
	state := "stopped"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id": "i1", "state": %q}`, state)
	}))
	defer server.Close()
	c, err := crannog.New(crannog.URL(server.URL), crannog.Key("k"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sb, err := c.Get(t.Context(), "i1")
	if err != nil {
		t.Fatal(err)
	}
	lost := &crannog.Error{Kind: string(fault.Unavailable), Code: client.CodeLost, Message: "lost"}
	other := &crannog.Error{Kind: string(fault.Invalid), Code: "bad", Message: "bad"}
	for _, c := range []struct {
		state string
		s     Scenario
		cause error
		held  bool
	}{
		{"stopped", Scenario{Goal: Received}, lost, true},
		{"stopped", Scenario{Goal: Changed}, lost, true},
		{"stopped", Scenario{Goal: Output}, lost, false},
		{"stopped", Scenario{Goal: Changed, Apply: true}, lost, false},
		{"running", Scenario{Goal: Received}, other, false},
	} {
		state = c.state
		stopped, err := (&attempt{Scenario: c.s}).ended(t.Context(), sb, c.cause)
		if held := err == nil && len(stopped) == 1; held != c.held || !held && !errors.Is(err, c.cause) {
			t.Errorf("%s, %+v: %v %v, want held %v", c.state, c.s, stopped, err, c.held)
		}
	}
}
