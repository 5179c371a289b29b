package registration

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// tomlFile edits one table of a TOML text and preserves everything else.
type tomlFile struct{ text string }

// errTOML is returned if the table is written in a form that cannot be edited.
var errTOML = errors.New("the table is written in another form than [mcp_servers.NAME]")

// set sets the fields of a table, and preserves fields that are not in ours. Values are strings and
// lists of strings.
func (f *tomlFile) set(table, name string, entry map[string]any, ours []string) error {
	return f.edit(table, name, func(servers map[string]any) []string {
		old, _ := servers[name].(map[string]any)
		servers[name] = decoded(merged(old, entry, ours))
		var lines []string
		for _, field := range slices.Sorted(maps.Keys(entry)) {
			lines = append(lines, field+" = "+tomlValue(entry[field]))
		}
		return lines
	}, ours)
}

// remove removes a table and its subtables.
func (f *tomlFile) remove(table, name string) error {
	return f.edit(table, name, func(servers map[string]any) []string { delete(servers, name); return nil }, nil)
}

// edit replaces the table's lines. It checks that the decoded document differs only by the
// requested change. If change returns nil, the table is removed.
func (f *tomlFile) edit(table, name string, change func(map[string]any) []string, ours []string) error {
	want, err := decodeTOML(f.text)
	if err != nil {
		return err
	}
	servers, ok := want[table].(map[string]any)
	if want[table] != nil && !ok {
		return fmt.Errorf("%s is not a table", table)
	}
	_, existed := servers[name]
	if servers == nil {
		servers = map[string]any{}
		want[table] = servers
	}
	lines := change(servers)
	text, found := f.rewrite(table, name, lines, ours)
	switch {
	case existed && !found:
		return errTOML
	case !found && lines != nil:
		text = strings.TrimRight(f.text, "\n")
		if text != "" {
			text += "\n\n"
		}
		text += "[" + table + "." + name + "]\n" + strings.Join(lines, "\n") + "\n"
	case !found:
		return nil
	}
	if len(servers) == 0 {
		delete(want, table)
	}
	got, err := decodeTOML(text)
	if err != nil {
		return errTOML
	}
	if empty, ok := got[table].(map[string]any); ok && len(empty) == 0 {
		delete(got, table)
	}
	if !reflect.DeepEqual(decoded(got), decoded(want)) {
		return errTOML
	}
	f.text = text
	return nil
}

// rewrite replaces this program's fields in a table by lines. If lines is empty, it removes the
// table with its subtables.
func (f *tomlFile) rewrite(table, name string, lines, ours []string) (string, bool) {
	var out []string
	inside, below, found := false, false, false
	for line := range strings.Lines(f.text) {
		if header, ok := tomlHeader(line); ok {
			inside = header == table+"."+name
			below = strings.HasPrefix(header, table+"."+name+".")
			if inside {
				found = true
				if lines != nil {
					out = append(out, line)
					for _, l := range lines {
						out = append(out, l+"\n")
					}
				}
				continue
			}
		}
		field, _, _ := strings.Cut(line, "=")
		if (inside || below) && lines == nil || inside && slices.Contains(ours, strings.TrimSpace(field)) {
			continue
		}
		out = append(out, line)
	}
	return strings.Join(out, ""), found
}

// tomlHeader returns the name of the table that a line begins.
func tomlHeader(line string) (string, bool) {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "[") || strings.HasPrefix(line, "[[") {
		return "", false
	}
	header, _, ok := strings.Cut(line[1:], "]")
	return strings.NewReplacer(`"`, "", "'", "", " ", "", "\t", "").Replace(header), ok
}

func tomlValue(value any) string {
	list, ok := value.([]string)
	if !ok {
		return strconv.Quote(fmt.Sprint(value))
	}
	var quoted []string
	for _, v := range list {
		quoted = append(quoted, strconv.Quote(v))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

func decodeTOML(text string) (map[string]any, error) {
	out := map[string]any{}
	err := toml.Unmarshal([]byte(text), &out)
	return out, err
}
