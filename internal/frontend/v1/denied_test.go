package v1

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit/flows"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/frontend/denial"
	"github.com/crannog/crannog/internal/sandbox"
)

// fakeFlows contains a sandbox's denied requests and, for one without a network, the names that
// were looked up.
type fakeFlows struct {
	records []egress.Record
	names   []string
	reads   int
}

func (w *fakeFlows) FlowSize(string) int64 { return int64(len(w.records)) }

func (w *fakeFlows) Flows(_ context.Context, _ sandbox.Principal, _ string, f flows.Filter, _ bool, yield func(egress.Record) error) error {
	w.reads++
	for _, r := range w.records[f.From:] {
		if r.Effect == egress.Deny {
			if err := yield(r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *fakeFlows) Asked(context.Context, sandbox.Principal, string, time.Time) ([]string, error) {
	w.reads++
	if w.names == nil {
		return nil, fault.New(fault.Unavailable, "guest_failed", "the guest is gone")
	}
	return w.names, nil
}

func (w *fakeFlows) deny(host string) {
	w.records = append(w.records, egress.Record{Kind: egress.KindDNS, Host: host, Decision: egress.Decision{Effect: egress.Deny, Rule: "network.unlisted", Fix: "--allow " + host}})
}

func TestExecReportsDenialsOfItsCommand(t *testing.T) {
	log := &fakeFlows{}
	d := &denials{log, slog.New(slog.DiscardHandler)}
	linked := sandbox.Sandbox{ID: "i1", Access: sandbox.Access{Net: sandbox.NetPolicy}}
	log.deny("before.test")
	started := d.mark(linked)
	if got := d.since(t.Context(), sandbox.Principal{}, linked, started, true); got != nil || log.reads != 0 {
		t.Errorf("nothing was denied: got %v with %d reads", got, log.reads)
	}
	log.records = append(log.records, egress.Record{Host: "good.test", Decision: egress.Decision{Effect: egress.Allow}})
	log.deny("a.test")
	log.deny("a.test")
	want := []api.Denial{{What: "a.test", Rule: "network.unlisted", Fix: "--allow a.test"}}
	if got := d.since(t.Context(), sandbox.Principal{}, linked, started, false); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for i := range 3 * denial.MaxListed {
		log.deny(fmt.Sprint(i, ".test"))
	}
	if got := d.since(t.Context(), sandbox.Principal{}, linked, started, false); len(got) != denial.MaxListed {
		t.Errorf("%d denials are returned", len(got))
	}
}

func TestExecReportsNamesWithoutNetwork(t *testing.T) {
	log := &fakeFlows{names: []string{"a.test"}}
	d := &denials{log, slog.New(slog.DiscardHandler)}
	unattached := sandbox.Sandbox{ID: "i1", Access: sandbox.Access{Net: sandbox.NetNone}}
	started := d.mark(unattached)
	if got := d.since(t.Context(), sandbox.Principal{}, unattached, started, false); got != nil || log.reads != 0 {
		t.Errorf("the command did not fail: got %v with %d reads", got, log.reads)
	}
	want := []api.Denial{{What: "a.test", Rule: "network.none", Fix: "--allow a.test"}}
	if got := d.since(t.Context(), sandbox.Principal{}, unattached, started, true); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	log.names = nil
	if got := d.since(t.Context(), sandbox.Principal{}, unattached, started, true); got != nil {
		t.Errorf("the guest did not respond, got %+v", got)
	}
}
