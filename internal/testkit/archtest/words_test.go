package archtest

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// banned matches phrases that keep a newcomer from understanding a text at once. A phrase may span
// two lines, also in comments.
var banned = regexp.MustCompile(`(?i)\b(` + strings.ReplaceAll(
	"nobody|whoever|for who|of then|comes about|tells whether|says what|goes on|meanwhile|in the place of",
	" ", `(?:[ \t]+|[ \t]*\n[ \t]*(?://|#|\*)*[ \t]*)`) + `)\b`)

// accountLine matches the line of /etc/passwd for an account that every Linux system has.
var accountLine = regexp.MustCompile(`(?m)^nobody:x:65534:65534:nobody:`)

// prose lists the kinds of files that people read.
var prose = []string{".go", ".md", ".ts", ".tsx", ".mjs", ".py", ".yaml", ".yml", ".txtar", ".sh"}

// TestPlainWords reports each banned phrase in comments and strings of Go, and in other prose.
func TestPlainWords(t *testing.T) {
	for _, found := range bannedWords(t, "../../..") {
		t.Errorf("%s: write this in plain words", found)
	}
}

// bannedWords returns the place of each banned phrase.
func bannedWords(t *testing.T, root string) []string {
	t.Helper()
	var found []string
	add := func(path string, line int, text string) {
		for _, at := range bannedInText(text) {
			found = append(found, fmt.Sprintf("%s:%d: %q", path, line+strings.Count(text[:at[0]], "\n"), text[at[0]:at[1]]))
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
			if slices.Contains([]string{".git", "bin", "internal/guest/gen"}, path) || d.Name() == "node_modules" {
				return fs.SkipDir
			}
			return nil
		}
		if path == "internal/testkit/archtest/words_test.go" || !d.Type().IsRegular() {
			return nil
		}
		ext := filepath.Ext(name)
		if !slices.Contains(prose, ext) {
			return nil
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		switch ext {
		case ".go":
			visitGoText(data, func(line int, text string) { add(path, line, text) })
		case ".md":
			add(path, 1, codeSpan.ReplaceAllString(string(data), "``")) // a name, not a word
		default:
			add(path, 1, string(data))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// bannedInText returns the positions of banned phrases in a text.
func bannedInText(text string) [][]int {
	return banned.FindAllStringIndex(accountLine.ReplaceAllStringFunc(text, func(line string) string {
		return strings.Repeat("-", len(line))
	}), -1)
}

// visitGoText calls visit for each string of a Go file, and for each group of adjacent comments.
func visitGoText(data []byte, visit func(line int, text string)) {
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(data))
	var s scanner.Scanner
	s.Init(file, data, nil, scanner.ScanComments)
	var comment string
	first, last := 0, 0
	flush := func() {
		if comment != "" {
			visit(first, comment)
		}
		comment = ""
	}
	for {
		pos, tok, lit := s.Scan()
		line := files.Position(pos).Line
		switch tok {
		case token.COMMENT:
			if comment != "" && line == last+1 {
				comment += "\n" + lit
			} else {
				flush()
				comment, first = lit, line
			}
			last = line + strings.Count(lit, "\n")
		case token.STRING:
			flush()
			visit(line, lit)
		case token.EOF:
			flush()
			return
		default:
		}
	}
}

// The check finds each banned phrase that a reader would see, and nothing else.
func TestPlainWordsAreFound(t *testing.T) {
	var got []string
	visitGoText([]byte("package p\n\n// Nobody tells\n// whether\nvar nobody = \"goes on\" + `a\nmeanwhile` /* whoever */\n\n// A clerk tells\n\n// whether\n"), func(line int, text string) {
		for _, at := range bannedInText(text) {
			got = append(got, fmt.Sprintf("%d %s", line, text[at[0]:at[1]]))
		}
	})
	want := []string{"3 Nobody", "3 tells\n// whether", "5 goes on", "5 meanwhile", "6 whoever"}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	if got := bannedInText("undergoes once, nobodys, of thence"); len(got) != 0 {
		t.Errorf("parts of words are found: %v", got)
	}
}

// Each kind of file that people read is searched, but not build output.
func TestPlainWordsInEachKindOfFile(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.go": "package a // nobody", "a.md": "`nobody` whoever", "a.ts": "// goes\n * on", "a.tsx": "nobody", "a.mjs": "nobody",
		"a.py": "# says\n# what", "a.yaml": "nobody", "a.yml": "nobody", "a.txtar": "nobody", "a.sh": "nobody",
		"node_modules/a.ts": "nobody", "bin/a.sh": "nobody", "a.bin": "nobody",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := bannedWords(t, dir)
	if len(got) != len(prose) {
		t.Errorf("found %q, want one in each of %q", got, prose)
	}
}

// The account in /etc/passwd is a name, and only exactly its line is exempt.
func TestPlainWordsAllowAccountLine(t *testing.T) {
	const line = "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
	if got := bannedInText("root:x:0:0:root:/root:/bin/bash\n" + line); len(got) != 0 {
		t.Errorf("the account is found: %v", got)
	}
	for _, text := range []string{"as " + line, "nobody: reads", "nobody:x:1000:1000:nobody:", line + "nobody reads"} {
		if len(bannedInText(text)) == 0 {
			t.Errorf("%q passes", text)
		}
	}
}
