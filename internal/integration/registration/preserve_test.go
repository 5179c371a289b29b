package registration

import (
	"bytes"
	"strings"
	"testing"
)

// texts are files in the style of various editors. Each has a list without Crannog's entry.
var texts = map[string]string{
	"byte order mark":           "\ufeff{\n  \"list\": {\n    \"other\": 1\n  }\n}\n",
	"CRLF":                      "{\r\n\t// list\r\n\t\"list\": {\r\n\t\t\"other\": 1, // o\r\n\t},\r\n}\r\n",
	"comment at the end":        "{\"list\": {\"other\": 1}} // no line end follows",
	"block comments everywhere": "/**/{/*1*/\"list\"/*2*/:/*3*/{/*4*/\"other\"/*5*/:/*6*/1/*7*/,/*8*/}/*9*/,/*/ */}/*e*/",
	"odd order and spacing":     "{ \"z\" :1 ,\n\n\n   \"a\":[ 1,2 , ],\"list\"  : { \"q\": {\"x\" : null}  , \"b\":0 } }\n\n",
	"escapes":                   "{\"\\u006cist\": {\"\\\"\": \"\\u2028\\ud83d\\ude00 /* no */ // \\\\\"}, \"n\": -0.0e+1}",
	"brackets in texts":         "{\"t\": \"" + strings.Repeat("{[", 300) + "\", /* " + strings.Repeat("{[", 300) + " */ \"list\": {}}",
	"wide":                      "{\"t\": [" + strings.Repeat("{\"a\": []}, ", 5000) + "], \"list\": {}}",
}

// TestEditsPreserveForeignBytes checks that a new entry only inserts bytes, that a changed entry
// changes only its value, and that removing an entry only deletes bytes.
func TestEditsPreserveForeignBytes(t *testing.T) {
	for name, text := range texts {
		f := jsonFile{[]byte(text)}
		if err := f.set(map[string]any{"command": "/x"}, "list", "crannog"); err != nil {
			t.Errorf("%s: set: error %v", name, err)
			continue
		}
		if pieces := inserted([]byte(text), f.text); pieces < 1 || pieces > 2 {
			t.Errorf("%s: a new entry made %d insertions, want 1, or 2 with a comma: %.300q", name, pieces, f.text)
		}
		added := bytes.Clone(f.text)
		if err := f.set("other", "list", "crannog"); err != nil {
			t.Errorf("%s: a second set: error %v", name, err)
			continue
		}
		value := bytes.Index(f.text, []byte(`"crannog": "other"`)) + len(`"crannog": `)
		after := f.text[value+len(`"other"`):]
		if !bytes.HasPrefix(added, f.text[:value]) || !bytes.HasSuffix(added, after) {
			t.Errorf("%s: a new value changed more than the value: %.300q", name, f.text)
		}
		changed := bytes.Clone(f.text)
		if err := f.remove("list", "crannog"); err != nil {
			t.Errorf("%s: remove: error %v", name, err)
			continue
		}
		if pieces := inserted(f.text, changed); pieces < 1 || pieces > 2 {
			t.Errorf("%s: removing the entry deleted %d pieces, want 1, or 2 with a comma: %.300q", name, pieces, f.text)
		}
	}
}

// inserted returns how many insertions turn the shorter text into the longer one, or -1 if
// insertions alone do not.
func inserted(short, long []byte) (pieces int) {
	in, i := false, 0
	for j := range long {
		if i < len(short) && short[i] == long[j] && (!in || bytes.HasPrefix(long[j:], short[i:min(len(short), i+3)])) {
			i, in = i+1, false
			continue
		}
		if !in {
			pieces, in = pieces+1, true
		}
	}
	if i < len(short) {
		return -1
	}
	return pieces
}

// TestDuplicateNamesAreRejected checks that a file is not edited if an object has a name twice,
// because a program may use the other member.
func TestDuplicateNamesAreRejected(t *testing.T) {
	for _, text := range []string{
		`{"a": 1, "\u0061": 2}`, `{"x": [{"y": {"a": 1, "a": 1}}]}`, `{"list": {"crannog": 1, "crannog": 2}}`,
	} {
		f := jsonFile{[]byte(text)}
		if err := f.set(1, "list", "crannog"); err == nil || !strings.Contains(err.Error(), "appears twice") || string(f.text) != text {
			t.Errorf("set in %s: got %v and %s, want an error and no change", text, err, f.text)
		}
	}
}

// TestDeepNestingIsRejected checks that a project file of another person cannot exhaust the stack,
// which would end the process.
func TestDeepNestingIsRejected(t *testing.T) {
	const deep = 2 << 20
	for _, text := range []string{
		`{"a":` + strings.Repeat("[", deep), strings.Repeat(`{"a":`, deep), `{"a":[` + strings.Repeat(`/*]*/["]",`, deep),
	} {
		f := jsonFile{[]byte(text)}
		if err := f.set(1, "list", "crannog"); err == nil || !strings.Contains(err.Error(), "nested too deeply") {
			t.Errorf("set in %.20s: got %v, want an error about the depth", text, err)
		}
	}
	f := jsonFile{[]byte(`{"a": ` + strings.Repeat("[", 150) + strings.Repeat("]", 150) + `}`)}
	if err := f.set(1, "list", "crannog"); err != nil {
		t.Errorf("150 levels: %v", err)
	}
}

// TestErrorsContainNoValues checks that an error gives the position of a mistake but no part of the
// text, which may be a key or contain terminal controls.
func TestErrorsContainNoValues(t *testing.T) {
	for _, text := range []string{
		"{\n\"key\": \"s3cr3t\t\x1b[2J\"}", "{\n\"key\": s3cr3t}", "{\n\"key\": \"\\s3cr3t\"}", "{\n\"key\": -s3cr3t}", "{\n\"s3cr3t\t\": 1}", "{\n\"a\" \"s3cr3t\"}",
	} {
		f := jsonFile{[]byte(text)}
		if err := f.set(1, "list", "crannog"); err == nil || strings.Contains(err.Error(), "s3cr3t") || !strings.HasPrefix(err.Error(), "line 2") {
			t.Errorf("set in %q: got %v, want an error at line 2 without the value", text, err)
		}
	}
}

// TestManyValuesAreRejected checks that a project file of another person cannot use up the memory:
// the parser takes hundreds of bytes for each number.
func TestManyValuesAreRejected(t *testing.T) {
	list := func(n int) jsonFile {
		return jsonFile{[]byte(`{"a": [` + strings.Repeat("1,", n) + `1]}`)}
	}
	f := list(2 << 20)
	if err := f.set(1, "list", "crannog"); err == nil || !strings.Contains(err.Error(), "values") {
		t.Errorf("two million values: %v", err)
	}
	f = list(10_000)
	if err := f.set(1, "list", "crannog"); err != nil {
		t.Errorf("ten thousand values: %v", err)
	}
}
