package registration

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestSetKeepsAllElse(t *testing.T) {
	for name, c := range map[string]struct{ before, after string }{
		"nothing":         {"", "{\n  \"list\": {\n    \"crannog\": 1\n  }\n}\n"},
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
		"a comment alone":     {"{\n  \"list\": {\n    // none yet\n  }\n}", "{\n  \"list\": {\n    \"crannog\": 1\n    // none yet\n  }\n}"},
		"another value":       {"{\"list\": {\"crannog\": {\"old\": true}, \"b\": 1e400}}", "{\"list\": {\"crannog\": 1, \"b\": 1e400}}"},
		"numbers as they are": {"{\n  \"n\": 12345678901234567890.10\n}", "{\n  \"n\": 12345678901234567890.10,\n  \"list\": {\n    \"crannog\": 1\n  }\n}"},
		"another's line ends": {"{\r\n  \"a\": 1\r\n}\r\n", "{\r\n  \"a\": 1,\n  \"list\": {\n    \"crannog\": 1\n  }\r\n}\r\n"},
	} {
		f := jsonFile{[]byte(c.before)}
		if err := f.set(1, "list", "crannog"); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := string(f.text); got != c.after {
			t.Errorf("%s: %q\nwant %q", name, got, c.after)
		}
		again := jsonFile{f.text}
		if err := again.set(1, "list", "crannog"); err != nil || string(again.text) != string(f.text) {
			t.Errorf("%s: a second time: %v %q", name, err, again.text)
		}
	}
}

func TestRemoveKeepsAllElse(t *testing.T) {
	for name, c := range map[string]struct{ before, after string }{
		"the only one":                   {"{\n  \"list\": {\n    \"crannog\": {\"a\": 1}\n  }\n}", "{\n  \"list\": {\n  }\n}"},
		"the first":                      {"{\"list\": {\n  \"crannog\": 1, // ours\n  \"b\": 2\n}}", "{\"list\": {\n // ours\n  \"b\": 2\n}}"},
		"the last":                       {"{\"list\": {\n  \"b\": 2, // b's\n  \"crannog\": 1\n}}", "{\"list\": {\n  \"b\": 2 // b's\n}}"},
		"with its comma":                 {"{\"list\": {\n  \"b\": 2,\n  \"crannog\": 1,\n}}", "{\"list\": {\n  \"b\": 2,\n}}"},
		"one line":                       {`{"list":{"b":2,"crannog":1}}`, `{"list":{"b":2}}`},
		"none":                           {`{"list":{"b":2}}`, `{"list":{"b":2}}`},
		"no list":                        {`{"a": "crannog"}`, `{"a": "crannog"}`},
		"nothing":                        {"", ""},
		"one of the same name elsewhere": {`{"crannog":1,"list":{"crannog":2,"c":3}}`, `{"crannog":1,"list":{"c":3}}`},
	} {
		f := jsonFile{[]byte(c.before)}
		if err := f.remove("list", "crannog"); err != nil || string(f.text) != c.after {
			t.Errorf("%s: %v %q\nwant %q", name, err, f.text, c.after)
		}
	}
}

func TestWhatCannotBeReadIsNotEdited(t *testing.T) {
	for _, text := range []string{
		"[1]", `{"a": 1} x`, `{"a": 1, "a": 2}`, `{"a": nope}`, `{"a" 1}`, `{"list": 3}`, `{"list": [1]}`, "{\"a\": \"\n\"}", `{"a": 1`,
		`{"a": 'x'}`, "{\"a\": \"\xff\"}", strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300), `{,}`, `{"a":1,,}`,
	} {
		f := jsonFile{[]byte(text)}
		if err := f.set(1, "list", "crannog"); err == nil || string(f.text) != text && !strings.Contains(err.Error(), "came out") {
			t.Errorf("%.40q: %v %.60q", text, err, f.text)
		}
	}
}

const codex = `# mine
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

func TestTOML(t *testing.T) {
	ours := []string{"command", "args", "url", "bearer_token_env_var"}
	f := tomlFile{codex}
	if err := f.set("mcp_servers", "crannog", map[string]any{"command": `/n"w`, "args": []string{"mcp", "-q"}}, ours); err == nil {
		t.Error("a text that looks like the table is edited")
	}
	clean := strings.Replace(codex, "\n[mcp_servers.crannog]\n\"\"\"", "none\n\"\"\"", 1)
	f = tomlFile{clean}
	if err := f.set("mcp_servers", "crannog", map[string]any{"command": `/n"w`, "args": []string{"mcp", "-q"}}, ours); err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(clean, "command = \"/old\"\nargs = [\"mcp\"]\n", "args = [\"mcp\", \"-q\"]\ncommand = \"/n\\\"w\"\n", 1)
	if f.text != want {
		t.Errorf("%s\nwant %s", f.text, want)
	}
	if err := f.remove("mcp_servers", "crannog"); err != nil || strings.Contains(f.text, "crannog") || !strings.Contains(f.text, "# mine") || !strings.Contains(f.text, "[mcp_servers.other]") {
		t.Errorf("%v %s", err, f.text)
	}
	empty := tomlFile{"a = 1"}
	if err := empty.set("mcp_servers", "crannog", map[string]any{"command": "/x", "args": []string{}}, ours); err != nil || empty.text != "a = 1\n\n[mcp_servers.crannog]\nargs = []\ncommand = \"/x\"\n" {
		t.Errorf("%v %q", err, empty.text)
	}
	for _, other := range []string{"mcp_servers = {crannog = {command = 'x'}}\n", "[mcp_servers]\ncrannog.command = 'x'\n", "mcp_servers = 3\n", "a = \n", "mcp_servers = {}\n"} {
		f := tomlFile{other}
		if err := f.set("mcp_servers", "crannog", map[string]any{"command": "/x", "args": []string{}}, ours); err == nil || f.text != other {
			t.Errorf("%q: %v %q", other, err, f.text)
		}
	}
}

// For any text, an edit either fails or changes exactly one value.
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
			t.Fatalf("%q: %v", file.text, err)
		}
		got, err := file.decode()
		if err != nil {
			t.Fatal(err)
		}
		was := jsonFile{[]byte(text)}
		if err := was.set(map[string]any{}, "list"); err == nil {
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
				t.Fatalf("%q: %v, want %v", text, got, want)
			}
		}
	})
}
