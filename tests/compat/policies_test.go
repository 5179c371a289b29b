package compat_test

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// decision is a policy's decision about one request.
type decision struct {
	Effect string `json:"effect"`
	Rule   string `json:"rule"`
	Layer  string `json:"layer"`
}

// finding is a result of "policy check" for a document, without the message, which may change.
type finding struct {
	Line   int    `json:"line"`
	Result string `json:"result"`
	Field  string `json:"field"`
}

// policyResult is a version's result for one document.
type policyResult struct {
	Findings []finding `json:"findings"`
	// Decisions are effect, rule and layer, by request.
	Decisions map[string]string `json:"decisions"`
	// Merged is the document merged with its level.
	Merged map[string]any `json:"merged"`
}

// requests returns the requests that are decided under every document.
func requests(t *testing.T) []string {
	t.Helper()
	f, err := os.Open("testdata/requests.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var list []string
	for s := bufio.NewScanner(f); s.Scan(); {
		if line := s.Text(); line != "" && !strings.HasPrefix(line, "#") {
			list = append(list, line)
		}
	}
	return list
}

func readPolicies(t *testing.T, run program) map[string]policyResult {
	t.Helper()
	files, err := filepath.Glob("testdata/policies/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]policyResult{}
	for _, file := range files {
		r := policyResult{Decisions: map[string]string{}}
		_, stdout, stderr := run(t, "policy", "check", "--json", file)
		if stdout == "" {
			t.Fatalf("check %s: %s", file, stderr)
		}
		r.Findings = decodeJSON[[]finding](t, stdout)
		for _, request := range requests(t) {
			// With --net policy, a level alone decides too.
			args := append([]string{"policy", "explain", "--json", "--net", "policy", "--policy", file}, strings.Fields(request)...)
			code, stdout, stderr := run(t, args...)
			if code > 1 {
				t.Fatalf("explain %s %s: %s", file, request, stderr)
			}
			d := decodeJSON[decision](t, stdout)
			r.Decisions[request] = d.Effect + " " + d.Rule + " " + d.Layer
		}
		code, stdout, stderr := run(t, "policy", "show", "--json", "--net", "policy", "--policy", file)
		if code != 0 {
			t.Fatalf("show %s: %s", file, stderr)
		}
		text := decodeJSON[struct {
			Document string `json:"document"`
		}](t, stdout).Document
		if err := yaml.Unmarshal([]byte(text), &r.Merged); err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(file)] = r
	}
	return all
}

// P51: a policy document of the earlier version is valid. It decides the same about each request
// and file, by the same rule. Its content is at least the same: a level may hide more files, not
// fewer.
func TestPolicies(t *testing.T) {
	want := golden(t, "policies.json", func(p program) map[string]policyResult { return readPolicies(t, p) })
	got := readPolicies(t, current)
	if len(want) < 40 {
		t.Fatalf("testdata lists only %d documents", len(want))
	}
	effects := map[string]int{}
	for name, w := range want {
		g := got[name]
		if !slices.Equal(g.Findings, w.Findings) {
			t.Errorf("%s: policy check reported %v and now reports %v", name, w.Findings, g.Findings)
		}
		for request, d := range w.Decisions {
			effect, _, _ := strings.Cut(d, " ")
			effects[effect]++
			if g.Decisions[request] != d {
				t.Errorf("%s: the decision about %s was %q and is %q", name, request, d, g.Decisions[request])
			}
		}
		for _, gone := range missing("", w.Merged, g.Merged) {
			t.Errorf("%s: %s", name, gone)
		}
	}
	if effects["allow"] < 100 || effects["ask"] < 100 || effects["deny"] < 100 {
		t.Errorf("the documents show too few different effects: %v", effects)
	}
}

// missing returns what a merged document lacks or has changed.
func missing(path string, want, got any) []string {
	switch w := want.(type) {
	case map[string]any:
		g, _ := got.(map[string]any)
		var all []string
		for name, v := range w {
			all = append(all, missing(path+"/"+name, v, g[name])...)
		}
		return all
	case []any:
		g, _ := got.([]any)
		var all []string
		for _, v := range w {
			if !slices.ContainsFunc(g, func(o any) bool { return len(missing(path, v, o)) == 0 }) {
				all = append(all, path+" no longer has "+text(v))
			}
		}
		return all
	default:
		if text(want) == text(got) {
			return nil
		}
		return []string{path + " was " + text(want) + " and is " + text(got)}
	}
}

// text formats a value, so that equal numbers of different types look the same.
func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// TestMissingReportsLosses is the control of TestPolicies: a lost item and a changed value are
// reported.
func TestMissingReportsLosses(t *testing.T) {
	var a, b map[string]any
	for text, v := range map[string]*map[string]any{"a: 1\nl: [x, y]\nm: {k: v}": &a, "a: 2\nl: [y, z]\nm: {k: v, n: 1}": &b} {
		if err := yaml.Unmarshal([]byte(text), v); err != nil {
			t.Fatal(err)
		}
	}
	found := missing("", a, b)
	slices.Sort(found)
	if want := []string{"/a was 1 and is 2", `/l no longer has "x"`}; !slices.Equal(found, want) {
		t.Errorf("missing: got %q, want %q", found, want)
	}
}
