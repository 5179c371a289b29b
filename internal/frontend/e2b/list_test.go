package e2b_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// listed returns the IDs in a list, and checks that each row has the required fields.
func listed(t testing.TB, w *httptest.ResponseRecorder) []string {
	t.Helper()
	if w.Code != http.StatusOK {
		t.Fatalf("list: %d %s", w.Code, w.Body)
	}
	var rows []map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &rows); err != nil || rows == nil {
		t.Fatalf("list answers %.200s: %v", w.Body, err)
	}
	ids := []string{}
	for _, row := range rows {
		for _, field := range []string{"templateID", "clientID", "startedAt", "endAt", "state", "cpuCount", "memoryMB", "diskSizeMB", "envdVersion"} {
			if row[field] == nil {
				t.Fatalf("a row lacks %s: %v", field, row)
			}
		}
		if row["envdAccessToken"] != nil {
			t.Fatal("a list shows access tokens")
		}
		ids = append(ids, row["sandboxID"].(string))
	}
	return ids
}

// TestTenThousandSandboxesInPages reads all pages in both orders, and the list without pages.
func TestTenThousandSandboxesInPages(t *testing.T) {
	sandboxes, h := newAPI(t)
	const n = 10_000
	sandboxes.fill(n, "k1")
	sandboxes.fill(5, "k2")
	for _, order := range []string{"asc", "desc"} {
		seen := map[string]bool{}
		token, before := "", ""
		for pages := 1; ; pages++ {
			w := do(h, "GET", "/v2/sandboxes?order="+order+"&nextToken="+url.QueryEscape(token), "")
			for _, id := range listed(t, w) {
				if seen[id] {
					t.Fatalf("%s: %s twice", order, id)
				}
				if before != "" && (id > before) != (order == "asc") {
					t.Fatalf("%s: %s after %s", order, id, before)
				}
				seen[id], before = true, id
			}
			if got := w.Header().Get("X-Total-Running"); got != "10000" {
				t.Fatalf("X-Total-Running = %q", got)
			}
			if token = w.Header().Get("X-Next-Token"); token == "" {
				if pages != n/100 {
					t.Errorf("%s: %d pages", order, pages)
				}
				break
			}
		}
		if len(seen) != n {
			t.Errorf("%s: %d of %d sandboxes", order, len(seen), n)
		}
	}
	if got := len(listed(t, do(h, "GET", "/sandboxes", ""))); got != n {
		t.Errorf("got %d rows in the list without pages, want %d", got, n)
	}
}

func TestListPageTokens(t *testing.T) {
	sandboxes, h := newAPI(t)
	sandboxes.fill(3, "k1")
	w := do(h, "GET", "/v2/sandboxes?limit=2", "")
	token := w.Header().Get("X-Next-Token")
	if len(listed(t, w)) != 2 || token == "" {
		t.Fatalf("first page %s, token %q", w.Body, token)
	}
	w = do(h, "GET", "/v2/sandboxes?limit=2&nextToken="+token, "")
	if len(listed(t, w)) != 1 || w.Header().Get("X-Next-Token") != "" {
		t.Errorf("last page %s, token %q", w.Body, w.Header().Get("X-Next-Token"))
	}
	encode := base64.RawURLEncoding.EncodeToString
	for _, bad := range []string{
		"x", "!!!", token + "A", token[:len(token)-4], encode(nil) + "_",
		encode([]byte("2026-01-02T03:04:05Z")),
		encode([]byte("2026-01-02T03:04:05Z__")),
		encode([]byte("yesterday__i1")),
		encode([]byte("2026-01-02T03:04:05Z__I1")),
		encode([]byte("2026-01-02T03:04:05Z__i1__desc")),
		encode([]byte("2026-01-02T03:04:05Z__i1__asc")), // for ascending order
		encode(make([]byte, 1000)),
	} {
		w := do(h, "GET", "/v2/sandboxes?nextToken="+url.QueryEscape(bad), "")
		wantFailure(t, w, http.StatusBadRequest, "next_token_invalid", "Invalid next token")
	}
	w = do(h, "GET", "/v2/sandboxes?order=asc&nextToken="+token, "")
	wantFailure(t, w, http.StatusBadRequest, "next_token_invalid", "Invalid next token")
}

func TestListFilters(t *testing.T) {
	sandboxes, h := newAPI(t)
	sandboxes.fill(3, "k1")
	sandboxes.list[0].Metadata = map[string]string{"a b": "x&y=z", "k": "v", "plus": "1+1"}
	sandboxes.list[1].Metadata = map[string]string{"k": "v"}
	first, second, third := sandboxes.list[0].ID, sandboxes.list[1].ID, sandboxes.list[2].ID
	all := []string{third, second, first}
	// The SDK encodes {"a b":"x&y=z","k":"v"} three times.
	encodedThrice := "metadata=a%252520b%3Dx%252526y%25253Dz%26k%3Dv"
	for query, want := range map[string][]string{
		"":                                      all,
		"state=running":                         all,
		"state=running%2Cpaused":                all,
		"state=running&state=paused":            all,
		"state=paused":                          {},
		"order=asc":                             {first, second, third},
		encodedThrice:                           {first},
		"metadata=k%3Dv":                        {second, first},
		"metadata=k%3Dw":                        {},
		"metadata=plus%3D1%25252B1":             {first},
		"metadata=":                             all,
		"template=base":                         all,
		"template=" + templateID:                all,
		"template=nope":                         {},
		"startedAfter=2026-01-02T03:04:05.680Z": {third},
		"startedAfter=2026-01-02T03:04:05.679901234Z":  {third, second},
		"startedAfter=2026-01-02T04:04:05.678%2B01:00": all,
		"limit=1":   {third},
		"unknown=1": all,
	} {
		w := do(h, "GET", "/v2/sandboxes?"+query, "")
		if got := listed(t, w); !equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
		total := w.Header().Get("X-Total-Running")
		if wantTotal := map[bool]string{true: "", false: "3"}[query == "state=paused"]; total != wantTotal {
			t.Errorf("%s: X-Total-Running %q", query, total)
		}
	}
	if got := listed(t, do(h, "GET", "/sandboxes?"+encodedThrice, "")); !equal(got, []string{first}) {
		t.Errorf("the first generation's filter finds %v", got)
	}
}

func equal(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestListRejectsInvalidQueries(t *testing.T) {
	_, h := newAPI(t)
	for query, code := range map[string]string{
		"state=gone":                 "query_invalid",
		"state=running,":             "query_invalid",
		"order=up":                   "query_invalid",
		"limit=0":                    "limit_invalid",
		"limit=101":                  "limit_invalid",
		"limit=-1":                   "limit_invalid",
		"limit=x":                    "limit_invalid",
		"limit=99999999999999999999": "limit_invalid",
		"startedAfter=now":           "query_invalid",
		"template=base:v1":           "template_filter_invalid",
		"template=a/b/c":             "template_reference_invalid",
		"metadata=novalue":           "metadata_filter_invalid",
		"metadata=%25zz%3D1":         "metadata_filter_invalid",
		"metadata=a%3D%25zz":         "metadata_filter_invalid",
		"metadata=%3Dv":              "metadata_filter_invalid",
		"metadata=a%3D1%26a%3D2":     "metadata_filter_invalid",
		"metadata=%zz":               "query_invalid",
		"a;b":                        "query_invalid",
	} {
		wantFailure(t, do(h, "GET", "/v2/sandboxes?"+query, ""), http.StatusBadRequest, code, "")
	}
	wantFailure(t, do(h, "GET", "/sandboxes?metadata=novalue", ""), http.StatusBadRequest, "metadata_filter_invalid", "")
}
