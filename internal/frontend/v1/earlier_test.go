package v1_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// testdata/openapi_earlier.json is the description before the fields were named after the
// glossary. A client that was written for it sends every request as before and finds every field
// of an answer, so nothing of the description may be absent from today's, and no request may
// require more.
func TestEarlierClientsStillWork(t *testing.T) {
	earlier, now := promises(t, "testdata/openapi_earlier.json"), promises(t, "../../../api/openapi.json")
	for _, s := range slices.Sorted(maps.Keys(earlier)) {
		if !now[s] {
			t.Errorf("the earlier API has %s, and today's does not", s)
		}
	}
	for _, s := range slices.Sorted(maps.Keys(now)) {
		call, _, required := strings.Cut(s, " requires ")
		if required && !earlier[s] && (earlier[call] || earlier[call+" object"]) {
			t.Errorf("today's API %s, and the earlier one did not", s)
		}
	}
	// Control: the promises include nested fields that were renamed.
	for _, s := range []string{
		"GET /v1/sandboxes/{id} 200 body.network.linked boolean", "GET /v1/sandboxes/{id}/changes 200 body.kept boolean",
		"GET /v1/sandboxes/{id} 200 body.workspace_keys.looked integer", "POST /v1/sandboxes/{id}/exec request requires cmd",
		`POST /v1/keys request.opens = "mcp"`, "GET /v1/changes 200 body.changes[].files integer",
	} {
		if !earlier[s] {
			t.Errorf("%s is missing from the promises of the earlier API", s)
		}
	}
	if delete(now, "GET /v1/version"); len(earlier) < 1000 || now["GET /v1/version"] {
		t.Errorf("%d promises are read", len(earlier))
	}
}

type (
	description struct {
		Paths      map[string]map[string]operation
		Components struct{ Schemas map[string]schema }
	}
	operation struct {
		Parameters []struct {
			Name, In string
			Required bool
			Schema   schema
		}
		RequestBody struct{ Content map[string]media }
		Responses   map[string]struct{ Content map[string]media }
	}
	media  struct{ Schema schema }
	schema struct {
		Ref                  string `json:"$ref"`
		Type                 any
		Enum                 []any
		Properties           map[string]schema
		Required             []string
		Items                *schema
		AdditionalProperties json.RawMessage // a schema, or false
	}
)

// promises returns the promises of an OpenAPI document to clients, one field or value each.
func promises(t *testing.T, file string) map[string]bool {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d description
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for path, operations := range d.Paths {
		for method, op := range operations {
			call := strings.ToUpper(method) + " " + path
			found[call] = true
			for _, p := range op.Parameters {
				d.walk(found, call+" "+p.In+" "+p.Name, p.Schema, nil, true)
				if p.Required && p.In != "path" {
					found[call+" requires "+p.In+" "+p.Name] = true
				}
			}
			for _, m := range op.RequestBody.Content {
				d.walk(found, call+" request", m.Schema, nil, true)
			}
			for status, answer := range op.Responses {
				for _, m := range answer.Content {
					d.walk(found, call+" "+status+" body", m.Schema, nil, false)
				}
			}
		}
	}
	return found
}

// walk visits a schema and those below it, each named schema once per path.
func (d *description) walk(found map[string]bool, at string, s schema, seen []string, request bool) {
	if name := strings.TrimPrefix(s.Ref, "#/components/schemas/"); name != "" {
		if slices.Contains(seen, name) {
			return
		}
		s, seen = d.Components.Schemas[name], append(slices.Clip(seen), name)
	}
	found[fmt.Sprint(at, " ", s.Type)] = true
	for _, value := range s.Enum {
		v, _ := json.Marshal(value)
		found[at+" = "+string(v)] = true
	}
	for name, field := range s.Properties {
		d.walk(found, at+"."+name, field, seen, request)
	}
	if request {
		for _, name := range s.Required {
			found[at+" requires "+name] = true
		}
	}
	if s.Items != nil {
		d.walk(found, at+"[]", *s.Items, seen, request)
	}
	var values schema
	if json.Unmarshal(s.AdditionalProperties, &values) == nil {
		d.walk(found, at+"{}", values, seen, request)
	}
}
