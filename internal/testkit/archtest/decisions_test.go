package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// decisionTitle is the first line of a decision record.
var decisionTitle = regexp.MustCompile(`^# ([0-9]{4}): (.+)\n`)

// decisionFaults lists what is wrong with a decision record: its title, its sections, its entry in
// the index.
func decisionFaults(name, text, index string) []string {
	title := decisionTitle.FindStringSubmatch(text)
	if title == nil || !strings.HasPrefix(name, title[1]+"-") {
		return []string{name + " does not begin with its number and title"}
	}
	var faults []string
	for _, section := range []string{"Context", "Decision"} {
		if !strings.Contains(text, "\n## "+section+"\n") {
			faults = append(faults, name+" has no section "+section)
		}
	}
	if !strings.Contains(index, fmt.Sprintf("| [%s](%s) | %s |", title[1], name, title[2])) {
		faults = append(faults, name+" is not in the index with its title")
	}
	return faults
}

// TestDecisionsAreListed keeps the index of decision records complete.
func TestDecisionsAreListed(t *testing.T) {
	const dir = "../../../docs/adr"
	index, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "[0-9]*.md"))
	if err != nil || len(files) < 42 {
		t.Fatalf("found %d decision records: %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range decisionFaults(filepath.Base(file), string(text), string(index)) {
			t.Error(fault)
		}
	}
}

func TestDecisionFaultsAreFound(t *testing.T) {
	const index = "| [0001](0001-a.md) | A title | accepted |\n"
	const good = "# 0001: A title\n\n## Context\n\n## Decision\n"
	for text, want := range map[string][]string{
		good: nil,
		"# 0002: A title\n\n## Context\n\n## Decision\n":       {"0001-a.md does not begin with its number and title"},
		"# 0001: Another title\n\n## Context\n\n## Decision\n": {"0001-a.md is not in the index with its title"},
		"# 0001: A title\n\n## Decision\n":                     {"0001-a.md has no section Context"},
	} {
		if got := decisionFaults("0001-a.md", text, index); !slices.Equal(got, want) {
			t.Errorf("%q: found %q, want %q", text, got, want)
		}
	}
}
