package server

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/figures"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

func TestCountAnswerCountsFinalEntriesOfPackages(t *testing.T) {
	fact := &packages.Fact{Ecosystem: packages.NPM, Name: "a", Verdict: packages.Passed, Fetched: 5}
	for name, c := range map[string]struct {
		record egress.Record
		want   int64
	}{
		"an answer":                     {egress.Record{Kind: egress.KindHTTP, Package: fact, Received: 9}, 1},
		"the beginning of an answer":    {egress.Record{Kind: egress.KindHTTP, Package: fact, Begins: true}, 0},
		"another request":               {egress.Record{Kind: egress.KindHTTP, Host: "a.test"}, 0},
		"a path that looks like a fact": {egress.Record{Kind: egress.KindHTTP, Path: `/"package":{"ecosystem":"npm","verdict":"passed"}`}, 0},
	} {
		data, err := json.Marshal(c.record)
		if err != nil {
			t.Fatal(err)
		}
		var counter figures.Counter
		countAnswer(&counter, data)
		if got := counter.Totals().Answers[figures.Answer{Ecosystem: packages.NPM, Verdict: packages.Passed}]; got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
		if b := counter.Totals().Bytes[packages.NPM]; c.want == 1 && b != (figures.Bytes{Fetched: 5, Served: 9}) {
			t.Errorf("%s: got %+v", name, b)
		}
	}
	var counter figures.Counter
	countAnswer(&counter, json.RawMessage(`{"package":{"ecosystem":["npm"]}}`))
	if got := counter.Totals(); len(got.Answers) != 0 {
		t.Errorf("data in another format: got %+v", got)
	}
}

// TestCountPackagesFollowsTheAuditLog checks that answers count from the start of the server on, and
// that counting ends with it.
func TestCountPackagesFollowsTheAuditLog(t *testing.T) {
	d := openFake(t)
	answer := func(verdict string) {
		t.Helper()
		data := egress.Record{Kind: egress.KindHTTP, Package: &packages.Fact{Ecosystem: packages.Go, Name: "a", Verdict: verdict}}
		if err := d.Audit.Append(t.Context(), audit.Draft{Kind: audit.Flow, Sandbox: "i1", Actor: "box", Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	answer(packages.Refused)
	end, err := d.countPackages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	answer(packages.Passed)
	answer(packages.Passed)
	count := func(verdict string) int64 {
		return d.packageCache().Answers().Answers[figures.Answer{Ecosystem: packages.Go, Verdict: verdict}]
	}
	hosttest.Eventually(t, "two answers are counted", func() bool { return count(packages.Passed) == 2 })
	if n := count(packages.Refused); n != 0 {
		t.Errorf("answers from before the start: got %d, want 0", n)
	}
	end()
	answer(packages.Passed)
	if n := count(packages.Passed); n != 2 {
		t.Errorf("after the end: got %d, want 2", n)
	}
	// An interrupt right after the start is no failure.
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if end, err = d.countPackages(ended); err != nil {
		t.Fatalf("while the server shuts down: %v", err)
	}
	end()
}

func TestChangesOfThePackageCacheAreRecorded(t *testing.T) {
	d := openFake(t)
	cache, session := d.packageCache(), sandbox.Principal{Local: true, Session: "c1"}
	if _, err := cache.Prune(t.Context(), session, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := cache.Verify(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	var got []string
	err := d.Audit.Read(t.Context(), audit.Filter{Kinds: []audit.Kind{audit.Action}}, false, func(e audit.Entry) error {
		var a struct{ Do, Outcome string }
		got = append(got, e.Actor)
		err := json.Unmarshal(e.Data, &a)
		got = append(got, a.Do, a.Outcome)
		return err
	})
	if want := []string{"console:c1", "package.prune", "ok", "console:c1", "package.verify", "ok"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q (%v), want %q", got, err, want)
	}
}
