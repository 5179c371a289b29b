// Package denial owns the descriptions of denials for people and agents: the denied action, the
// rule, and how to allow the action.
package denial

import (
	"net"
	"strconv"
	"strings"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/host/text"
	"github.com/crannog/crannog/internal/packages"
)

// Flow returns a record of the egress gateway in the form of the API.
func Flow(r egress.Record) api.FlowRecord {
	return api.FlowRecord{
		Time: r.Time, Sandbox: r.Sandbox, Seq: r.Seq, Kind: string(r.Kind), Method: r.Method,
		Host: r.Host, Port: r.Port, Path: r.Path, Address: r.Address, Status: r.Status,
		Effect: string(r.Effect), Rule: r.Rule, Layer: r.Layer, Policy: r.Policy, Reason: r.Reason, Fix: r.Fix,
		Sent: r.Sent, Received: r.Received, DurationMS: float64(r.Took.Microseconds()) / 1000,
		Approval: r.Approval, Secrets: r.Secrets, Error: r.Error, Probe: r.Probe, Package: packageFact(r.Package),
	}
}

func packageFact(f *packages.Fact) *api.PackageFact {
	if f == nil {
		return nil
	}
	return &api.PackageFact{
		Ecosystem: string(f.Ecosystem), Name: f.Name, Version: f.Version, Hash: f.Hash, Verdict: f.Verdict,
		Cached: f.Cached, Fetched: f.Fetched, Withheld: f.Withheld, Scripts: f.Scripts, Advisories: f.Advisories, Findings: f.Findings, Scan: f.Scan,
	}
}

// MaxListed bounds the listed denials of one command, so that a program in a loop does not hide its
// own output.
const MaxListed = 20

// List contains the denials of one command, each once.
type List struct {
	all      []api.Denial
	reported map[string]bool
	more     bool
}

// Add records a flow. It returns the denial and the number of denials so far. The number is zero
// for a repeated denial, and MaxListed+1 once if there are too many. Readiness probes of Crannog
// itself do not count.
func (l *List) Add(r api.FlowRecord) (api.Denial, int) {
	if r.Probe || l.more {
		return api.Denial{}, 0
	}
	denial := of(r)
	key := denial.Rule + " " + denial.What
	if l.reported[key] {
		return api.Denial{}, 0
	}
	if len(l.all) == MaxListed {
		l.more = true
		return api.Denial{}, MaxListed + 1
	}
	if l.reported == nil {
		l.reported = map[string]bool{}
	}
	l.reported[key] = true
	l.all = append(l.all, denial)
	return denial, len(l.all)
}

// All returns the recorded denials, at most MaxListed.
func (l *List) All() []api.Denial { return l.all }

// of returns the denial of a flow. A denied look-up appears once with its name, whatever address
// types were requested.
func of(r api.FlowRecord) api.Denial {
	what := Subject(r)
	if r.Kind == "dns" {
		what = text.Strict(r.Host, 200)
	}
	fix := r.Fix
	if fix == approve && r.Approval != "" {
		fix += " " + r.Approval
	}
	d := api.Denial{What: what, Rule: text.Strict(r.Rule, 200), Fix: text.Strict(fix, 200)}
	if r.Package != nil && fix == "" {
		// The rule alone does not say which version or which advisory it is about.
		d.Reason = text.Strict(r.Reason, maxReason)
	}
	return d
}

// maxReason limits the reason of a denial.
const maxReason = 500

// approve is the advice of policies for actions that need an approval. It contains a placeholder
// for the ID of the request.
const approve = "crannog approve"

// Name returns the denial of a name that a program tried to resolve without a network.
func Name(sandbox, name string) api.FlowRecord {
	return api.FlowRecord{
		Sandbox: sandbox, Kind: "dns", Host: name, Effect: "deny", Rule: "network.none",
		Reason: "this sandbox has no network", Fix: "--allow " + name,
	}
}

// Subject returns the destination of a flow as text. Control characters are removed, because a
// sandbox chose the text and could otherwise control the reader's terminal.
func Subject(r api.FlowRecord) string {
	host := r.Host
	switch {
	case r.Method != "" && r.Path != "" && r.Port == 443:
		host = "https://" + host
	case r.Method != "" && r.Path != "" && r.Port == 80:
		host = "http://" + host
	case r.Port > 0:
		host = net.JoinHostPort(host, strconv.Itoa(r.Port))
	}
	return text.Strict(strings.TrimSpace(r.Method+" "+host+r.Path), 200)
}
