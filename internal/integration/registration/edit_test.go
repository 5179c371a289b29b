package registration

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestSetPreservesOtherBytes(t *testing.T) {
	for name, c := range map[string]struct{ before, after string }{
		"empty file":      {"", "{\n  \"list\": {\n    \"crannog\": 1\n  }\n}\n"},
		"an empty object": {"{}", "{\n  \"list\": {\n    \"crannog\": 1\n  }\n}"},
		"other names in their order": {
			"{\n\t\"z\": 1,\n\t\"a\": [1, 2]\n}\n",
			"{\n\t\"z\": 1,\n\t\"a\": [1, 2],\n\t\"list\": {\n\t\t\"crannog\": 1\n\t}\n}\n",
		},
		"comments": {
			"// head\n{\n  /* a */ \"list\": { // the list\n    \"other\": {\"x\": \"// no comment\"} // last\n  }\n}\n",
			"// head\n{\n  /* a */ \"list\": { // the list\n    \"other\": {\"x\": \"// no comment\"}, // last\n    \"crannog\": 1\n  }\n}\n",
		},
		"a comma at the end": {
			"{\n    \"list\": {\n        \"other\": 2,\n    },\n}\n",
			"{\n    \"list\": {\n        \"other\": 2,\n        \"crannog\": 1,\n    },\n}\n",
		},
		"one line":            {`{"list":{"other":2},"b":3}`, "{\"list\":{\"other\":2,\n    \"crannog\": 1\n  },\"b\":3}"},
		"only a comment":      {"{\n  \"list\": {\n    // none yet\n  }\n}", "{\n  \"list\": {\n    \"crannog\": 1\n    // none yet\n  }\n}"},
		"another value":       {"{\"list\": {\"crannog\": {\"old\": true}, \"b\": 1e400}}", "{\"list\": {\"crannog\": 1, \"b\": 1e400}}"},
		"numbers as they are": {"{\n  \"n\": 12345678901234567890.10\n}", "{\n  \"n\": 12345678901234567890.10,\n  \"list\": {\n    \"crannog\": 1\n  }\n}"},
		"CRLF line ends":      {"{\r\n  \"a\": 1\r\n}\r\n", "{\r\n  \"a\": 1,\n  \"list\": {\n    \"crannog\": 1\n  }\r\n}\r\n"},
	} {
		f := jsonFile{[]byte(c.before)}
		if err := f.set(1, "list", "crannog"); err != nil {
			t.Errorf("%s: set: error %v", name, err)
		} else if got := string(f.text); got != c.after {
			t.Errorf("%s: got %q, want %q", name, got, c.after)
		}
		again := jsonFile{f.text}
		if err := again.set(1, "list", "crannog"); err != nil || string(again.text) != string(f.text) {
			t.Errorf("%s: second set: got %q (%v), want no change", name, again.text, err)
		}
	}
}

func TestRemovePreservesOtherBytes(t *testing.T) {
	for name, c := range map[string]struct{ before, after string }{
		"the only one":                {"{\n  \"list\": {\n    \"crannog\": {\"a\": 1}\n  }\n}", "{\n  \"list\": {\n  }\n}"},
		"the first":                   {"{\"list\": {\n  \"crannog\": 1, // ours\n  \"b\": 2\n}}", "{\"list\": {\n // ours\n  \"b\": 2\n}}"},
		"the last":                    {"{\"list\": {\n  \"b\": 2, // b's\n  \"crannog\": 1\n}}", "{\"list\": {\n  \"b\": 2 // b's\n}}"},
		"with its comma":              {"{\"list\": {\n  \"b\": 2,\n  \"crannog\": 1,\n}}", "{\"list\": {\n  \"b\": 2,\n}}"},
		"one line":                    {`{"list":{"b":2,"crannog":1}}`, `{"list":{"b":2}}`},
		"no such member":              {`{"list":{"b":2}}`, `{"list":{"b":2}}`},
		"no list":                     {`{"a": "crannog"}`, `{"a": "crannog"}`},
		"empty file":                  {"", ""},
		"same name in another object": {`{"crannog":1,"list":{"crannog":2,"c":3}}`, `{"crannog":1,"list":{"c":3}}`},
	} {
		f := jsonFile{[]byte(c.before)}
		if err := f.remove("list", "crannog"); err != nil || string(f.text) != c.after {
			t.Errorf("%s: got %q (%v), want %q", name, f.text, err, c.after)
		}
	}
}

func TestSetRejectsInvalidText(t *testing.T) {
	for _, text := range []string{
		"[1]", `{"a": 1} x`, `{"a": 1, "a": 2}`, `{"a": nope}`, `{"a" 1}`, `{"list": 3}`, `{"list": [1]}`, "{\"a\": \"\n\"}", `{"a": 1`,
		`{"a": 'x'}`, "{\"a\": \"\xff\"}", strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300), `{,}`, `{"a":1,,}`,
	} {
		f := jsonFile{[]byte(text)}
		if err := f.set(1, "list", "crannog"); err == nil || string(f.text) != text && !strings.Contains(err.Error(), "came out") {
			t.Errorf("set in %.40q: got %v and %.60q, want an error and no change", text, err, f.text)
		}
	}
}

// codexConfig has crannog's table twice: the real one, and a line in a string that looks like it.
const codexConfig = `# mine
model = "o" # the model

[mcp_servers.other]
command = "x"

[mcp_servers."crannog"] # ours
command = "/old"
args = ["mcp"]
startup_timeout_sec = 20
[mcp_servers.crannog.env]
A = "1"

[profiles.x]
s = """
[mcp_servers.crannog]
"""
`

func TestTOMLEditPreservesOtherTables(t *testing.T) {
	ours := []string{"command", "args", "url", "bearer_token_env_var"}
	f := tomlFile{codexConfig}
	if err := f.set("mcp_servers", "crannog", map[string]any{"command": `/n"w`, "args": []string{"mcp", "-q"}}, ours); err == nil {
		t.Error("set edited a text with a string that looks like the table, want an error")
	}
	clean := strings.Replace(codexConfig, "\n[mcp_servers.crannog]\n\"\"\"", "none\n\"\"\"", 1)
	f = tomlFile{clean}
	if err := f.set("mcp_servers", "crannog", map[string]any{"command": `/n"w`, "args": []string{"mcp", "-q"}}, ours); err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(clean, "command = \"/old\"\nargs = [\"mcp\"]\n", "args = [\"mcp\", \"-q\"]\ncommand = \"/n\\\"w\"\n", 1)
	if f.text != want {
		t.Errorf("set: got %s, want %s", f.text, want)
	}
	if err := f.remove("mcp_servers", "crannog"); err != nil || strings.Contains(f.text, "crannog") || !strings.Contains(f.text, "# mine") || !strings.Contains(f.text, "[mcp_servers.other]") {
		t.Errorf("remove: got %s (%v), want only crannog's tables removed", f.text, err)
	}
	empty := tomlFile{"a = 1"}
	if err := empty.set("mcp_servers", "crannog", map[string]any{"command": "/x", "args": []string{}}, ours); err != nil || empty.text != "a = 1\n\n[mcp_servers.crannog]\nargs = []\ncommand = \"/x\"\n" {
		t.Errorf("set of a new table: got %q (%v), want the table at the end", empty.text, err)
	}
	for _, text := range []string{"mcp_servers = {crannog = {command = 'x'}}\n", "[mcp_servers]\ncrannog.command = 'x'\n", "mcp_servers = 3\n", "a = \n", "mcp_servers = {}\n"} {
		f := tomlFile{text}
		if err := f.set("mcp_servers", "crannog", map[string]any{"command": "/x", "args": []string{}}, ours); err == nil || f.text != text {
			t.Errorf("set in %q: got %q (%v), want an error and no change", text, f.text, err)
		}
	}
}

// For any text, set either fails or changes exactly one value, and remove restores the others.
func FuzzEdit(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"list":{"crannog":{}}}`, "{ // c\n\"a\": [1,],\n}", "\ufeff{\"a\":/**/1}", `{"list":{"x":"\u0000"}}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file := jsonFile{[]byte(text)}
		if file.set("v", "list", "crannog") != nil {
			return
		}
		_, plain, err := parse(file.text)
		if err != nil || !json.Valid(plain) {
			t.Fatalf("%q became %q: %v", text, file.text, err)
		}
		if err := file.remove("list", "crannog"); err != nil {
			t.Fatalf("remove in %q: %v", file.text, err)
		}
		got, err := file.decode()
		if err != nil {
			t.Fatal(err)
		}
		original := jsonFile{[]byte(text)}
		if err := original.set(map[string]any{}, "list"); err == nil {
			before := jsonFile{[]byte(text)}
			if strings.TrimSpace(text) == "" {
				before.text = []byte("{}")
			}
			want, err := before.decode()
			if err != nil {
				t.Fatal(err)
			}
			list, _ := want["list"].(map[string]any)
			if list == nil {
				list = map[string]any{}
			}
			delete(list, "crannog")
			want["list"] = list
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%q after set and remove: got %v, want %v", text, got, want)
			}
		}
	})
}
