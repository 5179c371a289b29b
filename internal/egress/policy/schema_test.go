package policy_test

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
)

// schemaOf describes a type. Fields keep the order that encoding/json gives
// maps, so that the file changes only with the document.
func schemaOf(of reflect.Type, doc map[string]string) map[string]any {
	switch {
	case of == reflect.TypeFor[policy.Duration]():
		return map[string]any{"type": "string"}
	case of == reflect.TypeFor[policy.Ports]():
		return map[string]any{"type": "array", "items": map[string]any{"type": []string{"integer", "string"}}}
	case of == reflect.TypeFor[egress.Effect]():
		return map[string]any{"type": "string", "enum": []string{"allow", "ask", "deny"}}
	case of.Kind() == reflect.Pointer:
		return schemaOf(of.Elem(), doc)
	case of.Kind() == reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(of.Elem(), doc)}
	case of.Kind() == reflect.Bool:
		return map[string]any{"type": "boolean"}
	case of.Kind() == reflect.Int || of.Kind() == reflect.Int64:
		return map[string]any{"type": "integer"}
	case of.Kind() != reflect.Struct:
		return map[string]any{"type": "string"}
	}
	fields, needed := map[string]any{}, []string{}
	for f := range of.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		property := schemaOf(f.Type, doc)
		property["description"] = doc[of.Name()+"."+f.Name]
		fields[name] = property
		if !strings.Contains(options, "omitempty") {
			needed = append(needed, name)
		}
	}
	out := map[string]any{"type": "object", "properties": fields, "additionalProperties": false}
	if len(needed) > 0 {
		out["required"] = needed
	}
	return out
}

// schema.json is the schema of the current document.go.
func TestSchemaIsUpToDate(t *testing.T) {
	s := schemaOf(reflect.TypeFor[policy.Document](), comments(t))
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "Crannog policy"
	s["properties"].(map[string]any)["policy"].(map[string]any)["enum"] = []string{"v1"}
	s["properties"].(map[string]any)["level"].(map[string]any)["enum"] = policy.Levels()
	want, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile("schema.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(policy.Schema(), want) {
		t.Error("schema.json is stale: run make gen")
	}
}
