package compat_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/crannog/crannog/internal/frontend/v1"
)

// description is an OpenAPI document or a JSON schema.
type description = map[string]any

// withoutTexts returns a document without descriptions and summaries.
func withoutTexts(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = withoutTexts(v[i])
		}
	case description:
		for name, value := range v {
			if s, ok := value.(string); ok && (name == "description" || name == "summary") && s != "" {
				delete(v, name)
				continue
			}
			v[name] = withoutTexts(value)
		}
	}
	return v
}

func parseDescription(t *testing.T, data []byte) description {
	t.Helper()
	var d description
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func readDescription(t *testing.T, name string) description {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return parseDescription(t, data)
}

// earlierFile returns a document of the earlier version.
func earlierFile(t *testing.T, name, path string) description {
	t.Helper()
	return golden(t, name, func(program) description {
		return withoutTexts(readDescription(t, filepath.Join(*earlier, path))).(description)
	})
}

// P51: each path, parameter and field of the earlier /v1 exists with the same type. A request that
// was valid is still valid, and fields that an answer always had are still there.
func TestAPI(t *testing.T) {
	want := earlierFile(t, "openapi.json", "api/openapi.json")
	text, err := v1.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	c := comparison{was: want, is: parseDescription(t, text)}
	c.paths()
	for _, problem := range c.problems {
		t.Error(problem)
	}
	if c.compared < 400 {
		t.Errorf("only %d schemas were compared", c.compared)
	}
}

// P51: each key of a policy document of the earlier version exists with the same type and accepts
// the same values.
func TestPolicyKeys(t *testing.T) {
	want := earlierFile(t, "policy.schema.json", "internal/causeway/policy/schema.json")
	c := comparison{was: want, is: readDescription(t, "../../internal/egress/policy/schema.json")}
	c.schema("policy", c.was, c.is, request)
	for _, problem := range c.problems {
		t.Error(problem)
	}
	if c.compared < 70 {
		t.Errorf("only %d keys were compared", c.compared)
	}
}
