package denial

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/packages"
)

// TestFlowCopiesEachField checks that no field of a flow is lost, or swapped with another.
func TestFlowCopiesEachField(t *testing.T) {
	from := egress.Record{
		Time: time.Unix(1, 0), Sandbox: "sandbox", Seq: 2, Kind: "kind", Method: "method", Host: "host", Port: 3, Path: "path",
		Address: "address", Status: 4,
		Decision: egress.Decision{Effect: "effect", Rule: "rule", Layer: "layer", Policy: "policy", Reason: "reason", Fix: "fix"},
		Sent:     5, Received: 6, Took: 1500 * time.Microsecond, Approval: "approval", Secrets: []string{"secret"}, Error: "error", Probe: true,
		Package: &packages.Fact{
			Ecosystem: "ecosystem", Name: "name", Version: "version", Hash: "hash", Verdict: "verdict", Cached: true, Fetched: 7,
			Withheld: []string{"withheld"}, Scripts: []string{"scripts"}, Advisories: []string{"GHSA-1"}, Findings: []string{"finding"}, Scan: "scan",
		},
	}
	got := reflect.ValueOf(Flow(from))
	for i := range got.NumField() {
		field := got.Type().Field(i)
		value := got.Field(i).Interface()
		if field.Name == "DurationMS" {
			if value != 1.5 {
				t.Errorf("1500 µs became %v ms", value)
			}
			continue
		}
		want := reflect.ValueOf(from).FieldByName(field.Name)
		if want.IsZero() {
			t.Errorf("the test leaves %s empty", field.Name)
		}
		if field.Name == "Package" {
			// Both have the same names in JSON.
			fact := reflect.ValueOf(*from.Package)
			for i := range fact.NumField() {
				if fact.Field(i).IsZero() {
					t.Errorf("the test leaves Package.%s empty", fact.Type().Field(i).Name)
				}
			}
			if got, want := encoded(t, value), encoded(t, from.Package); got != want {
				t.Errorf("Package is %s, want %s", got, want)
			}
			continue
		}
		if !reflect.DeepEqual(value, want.Convert(field.Type).Interface()) {
			t.Errorf("%s: got %v, want %v", field.Name, value, want)
		}
	}
}

func encoded(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestSubject checks the text of each kind of destination, and its length.
func TestSubject(t *testing.T) {
	for want, r := range map[string]api.FlowRecord{
		"GET https://a.test/x": {Method: "GET", Host: "a.test", Port: 443, Path: "/x"},
		"GET http://a.test/x":  {Method: "GET", Host: "a.test", Port: 80, Path: "/x"},
		"GET a.test:8080/x":    {Method: "GET", Host: "a.test", Port: 8080, Path: "/x"},
		"a.test:443":           {Host: "a.test", Port: 443},
		"[::1]:22":             {Host: "::1", Port: 22},
		"AAAA a.test":          {Method: "AAAA", Host: "a.test"},
		"a\uFFFD[2J.test:1":    {Host: "a\x1b[2J.test", Port: 1},
		"CONNECT a.test:443":   {Method: "CONNECT", Host: "a.test", Port: 443},
	} {
		if got := Subject(r); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := Subject(api.FlowRecord{Method: "GET", Host: "a.test", Port: 80, Path: "/" + strings.Repeat("x", 5000)}); len([]rune(got)) > 250 {
		t.Errorf("got %d characters for a long path, want at most 250", len([]rune(got)))
	}
}
