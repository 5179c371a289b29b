package live

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/ids"
)

// Limits of the request for one stream.
const (
	maxTopics = 64
	maxWatch  = 200
	maxChange = 64 << 10
)

// topics are the kinds of events that a stream sends.
type topics struct {
	fleet, approvals bool
	all              bool     // entries of all sandboxes
	records          []string // sandboxes whose entries are sent
	networks         []string // sandboxes whose flows are sent
	watch            []string // sandboxes that are measured
}

// parseTopics parses a list of topics and sandboxes. An unknown one is an error, because a page
// with a misspelt topic would otherwise wait for ever.
func parseTopics(names, watch []string) (topics, error) {
	var t topics
	if len(names) > maxTopics || len(watch) > maxWatch {
		return t, fault.Newf(fault.Invalid, "too_many_topics", "a stream has at most %d topics and measures at most %d sandboxes", maxTopics, maxWatch)
	}
	for _, name := range names {
		group, id, one := strings.Cut(name, ":")
		switch {
		case name == "fleet":
			t.fleet = true
		case name == "approvals":
			t.approvals = true
		case name == "record":
			t.all = true
		case one && group == "record" && ids.ValidSandbox(id):
			t.records = append(t.records, id)
		case one && group == "network" && ids.ValidSandbox(id):
			t.networks = append(t.networks, id)
		default:
			return t, fault.New(fault.Invalid, "unknown_topic", "a topic must be fleet, approvals, record, record:SANDBOX or network:SANDBOX")
		}
	}
	for _, id := range watch {
		if !ids.ValidSandbox(id) {
			return t, fault.New(fault.Invalid, "invalid_id", "watch must be a list of sandbox IDs")
		}
	}
	t.watch = slices.Clone(watch)
	return t, nil
}

// entries reports whether the stream sends audit entries.
func (t topics) entries() bool { return t.all || len(t.records) > 0 || len(t.networks) > 0 }

// of returns the sandboxes whose entries are sent, or nil for all.
func (t topics) of() []string {
	if t.all {
		return nil
	}
	return slices.Concat(t.records, t.networks)
}

// list splits a list at commas; "" gives none.
func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// subscription is the request for a stream.
type subscription struct {
	topics topics
	after  int64 // entry after which to continue
	resume bool
}

func readSubscription(r *http.Request) (subscription, error) {
	var a subscription
	q := r.URL.Query()
	for name, values := range q {
		if name != "topics" && name != "watch" && name != "after" || len(values) != 1 {
			return a, fault.New(fault.Invalid, "invalid_query", "a request for a stream may have topics, watch and after, each at most once")
		}
	}
	var err error
	if a.topics, err = parseTopics(list(q.Get("topics")), list(q.Get("watch"))); err != nil {
		return a, err
	}
	// A browser that reconnects sends this header by itself.
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		text = q.Get("after")
	}
	if text == "" {
		return a, nil
	}
	if a.after, err = strconv.ParseInt(text, 10, 64); err != nil || a.after < -1 {
		return a, fault.New(fault.Invalid, "invalid_cursor", "after must be the number of an entry")
	}
	a.resume = true
	return a, nil
}

// change changes the topics of a stream. Entries are sent from then on.
func (l *Live) change(w http.ResponseWriter, r *http.Request, session, id string) error {
	var in struct {
		Topics []string `json:"topics"`
		Watch  []string `json:"watch"`
	}
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxChange))
	body.DisallowUnknownFields()
	if err := body.Decode(&in); err != nil {
		return fault.Wrap(err, fault.Invalid, "invalid_json", "the body is not {\"topics\":[…],\"watch\":[…]}")
	}
	t, err := parseTopics(in.Topics, in.Watch)
	if err != nil {
		return err
	}
	l.mu.Lock()
	s := l.streams[id]
	if s == nil || s.session != session {
		l.mu.Unlock()
		// A stream of another session gives the same error, so that names of streams cannot be
		// probed.
		return fault.New(fault.NotFound, "stream_not_found", "there is no such stream of this session").
			WithHint("open one with GET /console/api/events")
	}
	s.setTopics(t, l.lines.newest())
	s.notify()
	l.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
	return nil
}
