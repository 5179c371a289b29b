package archtest

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// banned are turns of phrase that keep a newcomer from understanding a text at once.
var banned = regexp.MustCompile(`(?i)\b(nobody|whoever|for who|of then|comes about|tells whether|says what|goes on|meanwhile|in the place of)\b`)

// wordsFile has the budget of each directory: how many banned words its comments,
// strings and pages may have.
const wordsFile = "words.tsv"

// TestPlainWords counts banned words in comments, strings and pages. A budget may only
// fall: a count below it has to be written down (-update), and no update raises one.
func TestPlainWords(t *testing.T) {
	found := bannedWords(t, "../../..")
	budget := readWords(t)
	low := false
	for _, dir := range slices.Sorted(maps.Keys(found)) {
		if n := len(found[dir]); n > budget[dir] {
			t.Errorf("%s has %d banned words, and its budget is %d; write these otherwise:\n\t%s", dir, n, budget[dir], strings.Join(found[dir], "\n\t"))
		}
	}
	var lines strings.Builder
	for _, dir := range slices.Sorted(maps.Keys(budget)) {
		n := min(len(found[dir]), budget[dir])
		low = low || n < budget[dir]
		if n > 0 {
			fmt.Fprintf(&lines, "%s\t%d\n", dir, n)
		}
	}
	if low && !*update {
		t.Errorf("the budgets of %s are too high; run: go test ./internal/testkit/archtest -update", wordsFile)
	}
	if low && *update {
		if err := os.WriteFile(wordsFile, []byte(lines.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func readWords(t *testing.T) map[string]int {
	t.Helper()
	data, err := os.ReadFile(wordsFile)
	if err != nil {
		t.Fatal(err)
	}
	budget := map[string]int{}
	for line := range strings.Lines(string(data)) {
		dir, count, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		n, err := strconv.Atoi(count)
		if err != nil {
			t.Fatalf("%s: %q", wordsFile, line)
		}
		budget[dir] = n
	}
	return budget
}

// bannedWords finds them by directory.
func bannedWords(t *testing.T, root string) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	add := func(path string, line int, text string) {
		for i, part := range strings.Split(text, "\n") {
			for _, word := range banned.FindAllString(part, -1) {
				dir := filepath.ToSlash(filepath.Dir(path))
				found[dir] = append(found[dir], fmt.Sprintf("%s:%d: %s", path, line+i, word))
			}
		}
	}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{".git", "node_modules", "bin", "internal/guest/gen"}, path) || d.Name() == "node_modules" {
				return fs.SkipDir
			}
			return nil
		}
		if path == "internal/testkit/archtest/words_test.go" || !d.Type().IsRegular() {
			return nil
		}
		switch filepath.Ext(name) {
		case ".go":
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			inGo(data, func(line int, text string) { add(path, line, text) })
		case ".md":
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			add(path, 1, codeSpan.ReplaceAllString(string(data), "``")) // a name, not a word
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// inGo hands over the comments and strings of a Go file.
func inGo(data []byte, text func(line int, text string)) {
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(data))
	var s scanner.Scanner
	s.Init(file, data, nil, scanner.ScanComments)
	for {
		pos, tok, lit := s.Scan()
		switch tok {
		case token.EOF:
			return
		case token.COMMENT, token.STRING:
			text(files.Position(pos).Line, lit)
		default:
		}
	}
}

// The count has to see each place where a reader meets a word, and no other.
func TestPlainWordsAreFound(t *testing.T) {
	var got []string
	inGo([]byte("package p\n\n// Nobody tells whether\nvar nobody = \"goes on\" + `a\nmeanwhile` /* whoever */\n"), func(_ int, text string) {
		got = append(got, banned.FindAllString(text, -1)...)
	})
	want := []string{"Nobody", "tells whether", "goes on", "meanwhile", "whoever"}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	if banned.MatchString("undergoes once, nobodys, of thence") {
		t.Error("it finds parts of words")
	}
}
