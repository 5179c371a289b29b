package e2b_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/secrets"
	"github.com/crannog/crannog/internal/frontend/e2b"
	"github.com/crannog/crannog/internal/store"
)

const canary = "canary-Zq81-value-of-a-secret"

// secretsAPI returns the API with a real vault and store.
func secretsAPI(t testing.TB) http.Handler {
	t.Helper()
	dir := t.TempDir()
	st, err := store.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return e2b.New(e2b.Deps{
		Finder: &memory{}, Templates: templates{}, Keys: keys{}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Secrets: secrets.New(secrets.Options{Store: st, Keys: secrets.NewKeyFile(filepath.Join(dir, secrets.KeyFileName))}),
	})
}

func TestSecretLifecycle(t *testing.T) {
	h := secretsAPI(t)
	w := do(h, "POST", "/secrets", `{"name":"openai-api-key","value":"`+canary+`","metadata":{"team":"pay"}}`)
	if w.Code != http.StatusCreated {
		t.Fatalf("POST /secrets: got %d %s", w.Code, w.Body)
	}
	made := object(t, w)
	id, _ := made["secretID"].(string)
	for _, field := range []string{"secretID", "name", "currentVersion", "metadata", "createdAt", "updatedAt"} {
		if made[field] == nil {
			t.Errorf("the response lacks %s: %v", field, made)
		}
	}
	if len(made) != 6 || made["currentVersion"] != 1.0 {
		t.Errorf("the created secret: got %v", made)
	}
	wantFailure(t, do(h, "POST", "/secrets", `{"name":"openai-api-key","value":"`+canary+`"}`), 409, "secret_exists", "already")
	w = do(h, "POST", "/secrets/openai-api-key", `{"value":"the second value"}`)
	if got := object(t, w); w.Code != 200 || got["currentVersion"] != 2.0 || got["metadata"].(map[string]any)["team"] != "pay" {
		t.Errorf("POST /secrets/openai-api-key: got %d %s", w.Code, w.Body)
	}
	for _, ref := range []string{id, "openai-api-key", "OpenAI-API-Key"} {
		if w := do(h, "GET", "/secrets/"+ref, ""); w.Code != 200 || object(t, w)["secretID"] != id {
			t.Errorf("%s: %d %s", ref, w.Code, w.Body)
		}
		// For another key the secret does not exist.
		wantFailure(t, do(h, "GET", "/secrets/"+ref, "", "X-API-KEY", otherKey), 404, "secret_not_found", "secret")
		wantFailure(t, do(h, "POST", "/secrets/"+ref, `{"value":"another value"}`, "X-API-KEY", otherKey), 404, "secret_not_found", "secret")
		wantFailure(t, do(h, "DELETE", "/secrets/"+ref, "", "X-API-KEY", otherKey), 404, "secret_not_found", "secret")
	}
	if w := do(h, "GET", "/secrets", "", "X-API-KEY", otherKey); w.Body.String() != "[]" {
		t.Errorf("another key lists %s", w.Body)
	}
	if w := do(h, "DELETE", "/secrets/"+id, ""); w.Code != http.StatusNoContent || w.Body.Len() != 0 {
		t.Errorf("DELETE /secrets/*: got %d %s", w.Code, w.Body)
	}
	wantFailure(t, do(h, "DELETE", "/secrets/"+id, ""), 404, "secret_not_found", id)
}

func TestSecretListPages(t *testing.T) {
	h := secretsAPI(t)
	for i := range 7 {
		if w := do(h, "POST", "/secrets", fmt.Sprintf(`{"name":"S%d","value":"%s"}`, i, canary)); w.Code != 201 {
			t.Fatalf("POST /secrets: got %d %s", w.Code, w.Body)
		}
	}
	var names []string
	query := "?limit=3"
	for range 4 {
		w := do(h, "GET", "/secrets"+query, "")
		var rows []struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &rows); err != nil || w.Code != 200 {
			t.Fatalf("GET /secrets*: got %d %s", w.Code, w.Body)
		}
		for _, r := range rows {
			names = append(names, r.Name)
		}
		next := w.Header().Get("X-Next-Token")
		if next == "" {
			break
		}
		// The next page is correct after the last secret of this one was removed.
		if w := do(h, "DELETE", "/secrets/"+names[len(names)-1], ""); w.Code != 204 {
			t.Fatalf("DELETE /secrets/*: got %v", w.Code)
		}
		query = "?limit=3&nextToken=" + next
	}
	if got := strings.Join(names, " "); got != "S0 S1 S2 S3 S4 S5 S6" {
		t.Errorf("got names %s from all pages, want S0 to S6", got)
	}
	for _, query := range []string{"?limit=0", "?limit=101", "?limit=x", "?nextToken=x", "?nextToken=AAAA", "?nextToken=" + strings.Repeat("A", 400)} {
		if w := do(h, "GET", "/secrets"+query, ""); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
}

// TestNoResponseContainsASecret checks valid requests and errors of every kind.
func TestNoResponseContainsASecret(t *testing.T) {
	h := secretsAPI(t)
	for _, c := range []struct {
		body string
		code int
	}{
		{`{"name":"A","value":"` + canary + `"}`, 201}, {`{"name":"A","value":"` + canary + `"}`, 409},
		{`{"name":"` + canary + ` x","value":"` + canary + `"}`, 400}, {`{"name":"sec_x","value":"` + canary + `"}`, 400},
		{`{"name":"B","value":"` + canary + "\xff" + `"}`, 400}, {`{"name":"B"}`, 400}, {`{"name":"B","value":"short"}`, 400},
		{`{"name":["` + canary + `"],"value":"x"}`, 400}, {`{"name":"B","value":["` + canary + `"]}`, 400}, {`{"value":"` + canary, 400},
	} {
		w := do(h, "POST", "/secrets", c.body)
		if w.Code != c.code || strings.Contains(w.Body.String(), "canary") {
			t.Errorf("%s: %d %s", c.body, w.Code, w.Body)
		}
	}
	for _, path := range []string{"/secrets", "/secrets/A"} {
		if w := do(h, "GET", path, ""); w.Code != 200 || strings.Contains(w.Body.String(), "canary") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
