package v1_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"

	v1 "github.com/crannog/crannog/internal/frontend/v1"
)

var update = flag.Bool("update", false, "write api/openapi.json anew")

// The description that clients are generated from is that of this code.
func TestOpenAPIFile(t *testing.T) {
	const file = "../../../api/openapi.json"
	want, err := v1.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("api/openapi.json is stale: run make gen")
	}
	// It has the routes that only some servers have.
	var doc struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	if err := json.Unmarshal(got, &doc); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/v1/sandboxes/{id}", "/v1/secrets", "/v1/approvals/events", "/v1/record", "/v1/snapshots", "/v1/keys", "/v1/images", "/v1/builds", "/v1/templates"} {
		if len(doc.Paths[path]) == 0 {
			t.Errorf("%s is not described", path)
		}
	}
}
