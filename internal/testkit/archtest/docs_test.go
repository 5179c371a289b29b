package archtest

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// proseColumns is the maximum width of a line of prose in a page. Tables and code blocks may be
// wider.
const proseColumns = 100

var (
	fence   = regexp.MustCompile("^ *(```|~~~)")
	heading = regexp.MustCompile(`^#{1,6} +(.+?) *#* *$`)
	anchor  = regexp.MustCompile(`<a (?:id|name)="([^"]+)">`)
	// inline matches [text](target) and ![text](target), also where text holds an image.
	inline   = regexp.MustCompile(`\]\(<?([^()\s>]+(?:\([^()\s]*\)[^()\s>]*)?)>?(?: +"[^"]*")?\)`)
	linkText = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	codeSpan = regexp.MustCompile("`[^`\n]*`")
)

// page is a Markdown file of the repository.
type page struct {
	path    string // relative to the repository
	prose   []line // outside code blocks
	anchors map[string]bool
}

type line struct {
	number int
	text   string
}

// readPage parses the text of a page.
func readPage(path, text string) page {
	p := page{path: path, anchors: map[string]bool{}}
	closing := ""
	for i, l := range strings.Split(text, "\n") {
		if i == 0 && l == "---" {
			closing = l // the front matter of a skill, each field in one line
			continue
		}
		if closing == "---" {
			if l == closing {
				closing = ""
			}
			continue
		}
		mark := fence.FindStringSubmatch(l)
		switch {
		case closing != "":
			if mark != nil && mark[1] == closing {
				closing = ""
			}
			continue
		case mark != nil:
			closing = mark[1]
			continue
		}
		p.prose = append(p.prose, line{i + 1, l})
		if m := heading.FindStringSubmatch(l); m != nil {
			slug := slugOf(m[1])
			for name, n := slug, 1; ; n++ {
				if !p.anchors[name] {
					p.anchors[name] = true
					break
				}
				name = fmt.Sprintf("%s-%d", slug, n)
			}
		}
		for _, m := range anchor.FindAllStringSubmatch(l, -1) {
			p.anchors[m[1]] = true
		}
	}
	return p
}

// slugOf returns the anchor that a forge gives a heading.
func slugOf(title string) string {
	title = linkText.ReplaceAllString(title, "$1")
	var b strings.Builder
	for _, r := range strings.ToLower(title) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsNumber(r):
			b.WriteRune(r)
		}
	}
	return b.String()
}

// pages returns the Markdown files of the repository, by path.
func pages(t *testing.T) map[string]page {
	t.Helper()
	found := map[string]page{}
	walk(t, func(path string, data []byte) {
		if filepath.Ext(path) != ".md" {
			return
		}
		rel, err := filepath.Rel("../../..", path)
		if err != nil {
			t.Fatal(err)
		}
		found[filepath.ToSlash(rel)] = readPage(filepath.ToSlash(rel), string(data))
	})
	if len(found) < 20 {
		t.Fatalf("found %d pages", len(found))
	}
	return found
}

// deadLinks lists the relative links of a page that lead to no file or anchor.
func deadLinks(p page, all map[string]page, stat func(path string) (fs.FileInfo, error)) []string {
	var dead []string
	for _, l := range p.prose {
		for _, m := range inline.FindAllStringSubmatch(codeSpan.ReplaceAllString(l.text, ""), -1) {
			target, err := url.Parse(m[1])
			if err != nil {
				dead = append(dead, fmt.Sprintf("%s:%d: %s: %v", p.path, l.number, m[1], err))
				continue
			}
			if target.Scheme != "" || target.Host != "" {
				continue
			}
			to := p.path
			if target.Path != "" {
				to = filepath.ToSlash(filepath.Join(filepath.Dir(p.path), target.Path))
			}
			if _, err := stat(to); err != nil || strings.HasPrefix(to, "../") {
				dead = append(dead, fmt.Sprintf("%s:%d: %s: there is no %s", p.path, l.number, m[1], to))
				continue
			}
			if target.Fragment != "" && !all[to].anchors[target.Fragment] {
				dead = append(dead, fmt.Sprintf("%s:%d: %s: %s has no such heading", p.path, l.number, m[1], to))
			}
		}
	}
	return dead
}

// TestLinksOfPages checks that each relative link leads to a file, and each anchor to a heading.
func TestLinksOfPages(t *testing.T) {
	all := pages(t)
	links := 0
	for _, p := range all {
		for _, l := range p.prose {
			links += len(inline.FindAllString(l.text, -1))
		}
		for _, dead := range deadLinks(p, all, func(path string) (fs.FileInfo, error) { return os.Stat("../../../" + path) }) {
			t.Error(dead)
		}
	}
	if links < 100 {
		t.Errorf("found %d links", links)
	}
}

// wideLines lists the lines of prose of a page that are too wide. Headings, images and lines
// without a space cannot be broken and are not counted.
func wideLines(p page) []string {
	var found []string
	for _, l := range p.prose {
		text := strings.TrimSpace(l.text)
		table := strings.HasPrefix(text, "|")
		image := strings.HasPrefix(text, "![") && strings.HasSuffix(text, ")") && strings.Count(text, "](") == 1
		if n := utf8.RuneCountInString(l.text); n > proseColumns && !table && !image && !heading.MatchString(l.text) && strings.Contains(text, " ") {
			found = append(found, fmt.Sprintf("%s:%d has %d columns", p.path, l.number, n))
		}
	}
	return found
}

func TestProseIsNarrow(t *testing.T) {
	for _, p := range pages(t) {
		for _, line := range wideLines(p) {
			t.Errorf("%s, above %d", line, proseColumns)
		}
	}
}

// Control: the checks find dead links and wide lines.
func TestChecksOfPagesFindFaults(t *testing.T) {
	long := strings.Repeat("word ", 25)
	p := readPage("docs/a.md", "# Title `x` of [it](b.md)\n## Same\n## Same\n"+
		"[1](#title-x-of-it) [2](#same-1) [3](#same-2) [4](b.md#here) [5](b.md#there) [6](c.md)\n"+
		"[7](https://example.com/c.md#x) ![8](../e.png) `[9](c.md)` [10](../../f.md)\n"+
		"```sh\n[11](c.md) "+long+"\n# Comment\n```\n"+
		"| "+long+"\n"+long+"\n")
	b := readPage("docs/b.md", "## Here\n")
	stat := func(path string) (fs.FileInfo, error) {
		if path == "docs/a.md" || path == "docs/b.md" || path == "../f.md" {
			return nil, nil
		}
		return nil, fs.ErrNotExist
	}
	var got []string
	for _, d := range deadLinks(p, map[string]page{"docs/a.md": p, "docs/b.md": b}, stat) {
		got = append(got, strings.SplitN(d, ": ", 3)[1])
	}
	if want := "#same-2 b.md#there c.md ../e.png ../../f.md"; strings.Join(got, " ") != want {
		t.Errorf("dead links are %q, want %s", got, want)
	}
	if got := wideLines(p); len(got) != 1 || !strings.HasPrefix(got[0], "docs/a.md:11 ") {
		t.Errorf("wide lines are %q", got)
	}
}

// TestEveryCallIsInTheReference compares the API calls in docs/reference/api.md with the OpenAPI
// description.
func TestEveryCallIsInTheReference(t *testing.T) {
	data, err := os.ReadFile("../../../api/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var description struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(data, &description); err != nil {
		t.Fatal(err)
	}
	described := map[string]bool{}
	for path, methods := range description.Paths {
		for method := range methods {
			described[strings.ToUpper(method)+" "+path] = true
		}
	}
	reference, err := os.ReadFile("../../../docs/reference/api.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z]+ /v1/[^`]*)` \\|").FindAllStringSubmatch(string(reference), -1) {
		listed[m[1]] = true
	}
	for call := range described {
		if !listed[call] {
			t.Errorf("docs/reference/api.md does not list %s", call)
		}
	}
	for call := range listed {
		if !described[call] {
			t.Errorf("docs/reference/api.md lists %s, which api/openapi.json does not describe", call)
		}
	}
	if len(described) < 40 {
		t.Errorf("found %d calls", len(described))
	}
}

// TestReadmeIsShort bounds the README, including its code blocks and tables.
func TestReadmeIsShort(t *testing.T) {
	data, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	if len(lines) > 200 {
		t.Errorf("README.md has %d lines, above 200", len(lines))
	}
	for i, l := range lines {
		if n := utf8.RuneCountInString(l); n > proseColumns {
			t.Errorf("README.md:%d has %d columns, above %d", i+1, n, proseColumns)
		}
	}
}

// TestContributingNamesFiles checks the table of CONTRIBUTING.md that maps a task to the file that
// a newcomer would guess: each file exists, and there are at least twenty tasks.
func TestContributingNamesFiles(t *testing.T) {
	data, err := os.ReadFile("../../../CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	tasks := tasksOf(string(data))
	if len(tasks) < 20 {
		t.Errorf("CONTRIBUTING.md lists %d tasks, below 20", len(tasks))
	}
	for task, files := range tasks {
		if len(files) == 0 {
			t.Errorf("%q names no file", task)
		}
		for _, file := range files {
			if info, err := os.Stat("../../../" + file); err != nil || info.IsDir() {
				t.Errorf("%q names %s, which is not a file", task, file)
			}
		}
	}
	// Control: rows are read with all their files, and other tables are not.
	got := tasksOf("| kind | where |\n|---|---|\n| unit | `a.go` |\n\n| task | file |\n|---|---|\n| fork | `b.go` or `c/d.md`, of `Fork` |\n| none | x |\n\n| e | `f.go` |\n")
	if len(got) != 2 || strings.Join(got["fork"], " ") != "b.go c/d.md" || len(got["none"]) != 0 {
		t.Errorf("tasks are read as %q", got)
	}
}

// tasksOf returns the files of each task in the table with the heading "task | file".
func tasksOf(page string) map[string][]string {
	_, table, _ := strings.Cut(page, "| task | file |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	tasks := map[string][]string{}
	file := regexp.MustCompile("`([\\w./-]+\\.[a-z]+)`")
	for row := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(row, "|")
		if len(cells) < 4 {
			continue
		}
		task := strings.TrimSpace(cells[1])
		tasks[task] = nil
		for _, m := range file.FindAllStringSubmatch(cells[2], -1) {
			tasks[task] = append(tasks[task], m[1])
		}
	}
	return tasks
}
