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

// Bounds of what one stream asks for.
const (
	maxTopics = 64
	maxWatch  = 200
	maxChange = 64 << 10
)

// topics are what a stream tells of.
type topics struct {
	fleet, approvals bool
	all              bool     // entries of all sandboxes
	records          []string // sandboxes whose entries are told
	networks         []string // sandboxes whose flows are told
	watch            []string // sandboxes that are measured
}

// parseTopics reads a list of topics and sandboxes. What is unknown is an
// error: a misspelt topic would be a page that never hears.
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
			return t, fault.New(fault.Invalid, "unknown_topic", "a topic is fleet, approvals, record, record:SANDBOX or network:SANDBOX")
		}
	}
	for _, id := range watch {
		if !ids.ValidSandbox(id) {
			return t, fault.New(fault.Invalid, "invalid_id", "watch has IDs of sandboxes")
		}
	}
	t.watch = slices.Clone(watch)
	return t, nil
}

// entries reports whether anything of the record is told.
func (t topics) entries() bool { return t.all || len(t.records) > 0 || len(t.networks) > 0 }

// of are the sandboxes whose entries are read, nil for all.
func (t topics) of() []string {
	if t.all {
		return nil
	}
	return slices.Concat(t.records, t.networks)
}

// list splits what is apart by commas; "" is none.
func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// ask is what a request for a stream says.
type ask struct {
	topics topics
	after  int64 // entry after which to go on
	resume bool
}

func readAsk(r *http.Request) (ask, error) {
	var a ask
	q := r.URL.Query()
	for name, values := range q {
		if name != "topics" && name != "watch" && name != "after" || len(values) != 1 {
			return a, fault.New(fault.Invalid, "invalid_query", "a stream is asked for with topics, watch and after, each at most once")
		}
	}
	var err error
	if a.topics, err = parseTopics(list(q.Get("topics")), list(q.Get("watch"))); err != nil {
		return a, err
	}
	// A browser that comes back says by itself what it had last.
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		text = q.Get("after")
	}
	if text == "" {
		return a, nil
	}
	if a.after, err = strconv.ParseInt(text, 10, 64); err != nil || a.after < -1 {
		return a, fault.New(fault.Invalid, "invalid_cursor", "after is the number of an entry")
	}
	a.resume = true
	return a, nil
}

// change lets a stream tell of other topics. Entries are told from then on.
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
		// Another session's reads the same, so that none can be probed.
		return fault.New(fault.NotFound, "stream_not_found", "there is no such stream of this session").
			WithHint("open one with GET /console/api/events")
	}
	s.turn(t, l.lines.newest())
	s.nudge()
	l.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
	return nil
}
