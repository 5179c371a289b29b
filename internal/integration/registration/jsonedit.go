package registration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
)

// jsonFile edits a JSON text. It preserves all bytes outside of this program's entry.
type jsonFile struct{ text []byte }

// set sets the value at a path of names, and creates missing objects on the way.
func (f *jsonFile) set(value any, path ...string) error {
	if len(bytes.TrimSpace(f.text)) == 0 {
		f.text = []byte("{}\n")
	}
	before, err := f.decode()
	if err != nil {
		return err
	}
	top, _, err := parse(f.text)
	if err != nil {
		return err
	}
	o, remaining := top, path
	for len(remaining) > 1 {
		m := o.find(remaining[0])
		if m == nil {
			break
		}
		if m.object == nil {
			return fmt.Errorf("%q is not an object", remaining[0])
		}
		o, remaining = m.object, remaining[1:]
	}
	indent, line := f.indents(o, len(path)-len(remaining))
	leaf := value
	for i := len(remaining) - 1; i > 0; i-- {
		value = map[string]any{remaining[i]: value}
	}
	data, err := format(value, indent, line)
	if err != nil {
		return err
	}
	if m := o.find(remaining[0]); m != nil {
		f.replace(m.value, m.end, data)
	} else {
		f.insert(o, remaining[0], data, indent, line)
	}
	return f.check(before, path, func(in map[string]any, name string) { in[name] = decoded(leaf) })
}

// remove removes the value at a path of names, if there is one.
func (f *jsonFile) remove(path ...string) error {
	if len(bytes.TrimSpace(f.text)) == 0 {
		return nil
	}
	before, err := f.decode()
	if err != nil {
		return err
	}
	o, _, err := parse(f.text)
	if err != nil {
		return err
	}
	for _, name := range path[:len(path)-1] {
		m := o.find(name)
		if m == nil || m.object == nil {
			return nil
		}
		o = m.object
	}
	name := path[len(path)-1]
	m := o.find(name)
	if m == nil {
		return nil
	}
	from, to := m.start, m.end
	if m.comma > 0 {
		to = m.comma
	}
	// The member's line is removed too, unless a comment follows it.
	for from > o.start+1 && (f.text[from-1] == ' ' || f.text[from-1] == '\t') {
		from--
	}
	if from > o.start+1 && f.text[from-1] == '\n' && bytes.IndexByte([]byte("\n\r}"), f.text[to]) >= 0 {
		from--
	}
	f.replace(from, to, nil)
	if last := len(o.members) - 1; m.comma == 0 && last > 0 {
		before := o.members[last-1].comma
		f.replace(before-1, before, nil)
	}
	return f.check(before, path, func(in map[string]any, name string) { delete(in, name) })
}

// check returns an error if an edit changed anything but the intended value. want is the decoded
// text before the edit, and change makes the intended change in it.
func (f *jsonFile) check(want map[string]any, path []string, change func(map[string]any, string)) error {
	in := want
	for _, name := range path[:len(path)-1] {
		next, ok := in[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			in[name] = next
		}
		in = next
	}
	change(in, path[len(path)-1])
	got, err := f.decode()
	if err != nil || !reflect.DeepEqual(got, want) {
		return fmt.Errorf("the edit changed something else (%w)", err)
	}
	return nil
}

// decode returns the text's value, with numbers as they are written.
func (f *jsonFile) decode() (map[string]any, error) {
	_, plain, err := parse(f.text)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	d := json.NewDecoder(bytes.NewReader(plain))
	d.UseNumber()
	return out, d.Decode(&out)
}

// decoded returns a value in the form that decoding its JSON text returns.
func decoded(value any) (out any) {
	// The value comes from this program, so it can be encoded and decoded.
	data, _ := json.Marshal(value)
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	_ = d.Decode(&out)
	return out
}

func (f *jsonFile) replace(from, to int, with []byte) {
	f.text = append(append(append([]byte(nil), f.text[:from]...), with...), f.text[to:]...)
}

// insert adds a member at the end of an object.
func (f *jsonFile) insert(o *object, name string, data []byte, indent, line string) {
	// Strings always marshal.
	key, _ := json.Marshal(name)
	text := "\n" + line + string(key) + ": " + string(data)
	if len(o.members) == 0 {
		// Existing comments stay behind the new member.
		tail := ""
		if f.text[o.start+1] == '}' {
			tail = "\n" + strings.TrimSuffix(line, indent)
		}
		f.replace(o.start+1, o.start+1, []byte(text+tail))
		return
	}
	// The member is inserted after all comments, because they belong to the members before them.
	at := o.end - 1
	for at > 0 && bytes.IndexByte([]byte(" \t\r\n"), f.text[at-1]) >= 0 {
		at--
	}
	if bytes.IndexByte(f.text[at:o.end], '\n') < 0 {
		text += "\n" + strings.TrimSuffix(line, indent)
	}
	last := o.members[len(o.members)-1]
	if last.comma > 0 {
		f.replace(at, at, []byte(strings.Replace(text, string(data), string(data)+",", 1))) // with a trailing comma, like the members before it
		return
	}
	f.replace(at, at, []byte(text))
	f.replace(last.end, last.end, []byte(","))
}

// indents returns one step of the file's indentation, and the indentation of an object's members.
func (f *jsonFile) indents(o *object, depth int) (step, line string) {
	if len(o.members) > 0 {
		if own, ok := f.leading(o.members[0].start); ok {
			step = own[:len(own)/(depth+1)]
			if step == "" {
				step = "  "
			}
			return step, own
		}
	}
	step = "  "
	if bytes.Contains(f.text, []byte("\n\t")) {
		step = "\t"
	}
	return step, strings.Repeat(step, depth+1)
}

// leading returns the white space before a position, if it begins a line.
func (f *jsonFile) leading(at int) (string, bool) {
	from := at
	for from > 0 && (f.text[from-1] == ' ' || f.text[from-1] == '\t') {
		from--
	}
	return string(f.text[from:at]), from > 0 && f.text[from-1] == '\n'
}

func format(value any, indent, line string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent(line, indent)
	err := e.Encode(value)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}

// merged returns an entry with this program's fields, and with the other fields of the old entry.
func merged(before any, entry map[string]any, ours []string) map[string]any {
	out := map[string]any{}
	if m, ok := before.(map[string]any); ok {
		maps.Copy(out, m)
	}
	for _, name := range ours {
		delete(out, name)
	}
	maps.Copy(out, entry)
	return out
}
