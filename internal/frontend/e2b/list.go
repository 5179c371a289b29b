package e2b

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

const maxPage = 100

// The two states of the API.
const (
	stateRunning = "running"
	statePaused  = "paused"
)

// runningStates are the states of /v1 that this API calls running, pausedStates those that it calls
// paused, and visibleStates both.
var (
	runningStates = []sandbox.State{sandbox.Running}
	pausedStates  = []sandbox.State{sandbox.Paused, sandbox.Pausing, sandbox.Resuming}
	visibleStates = slices.Concat(runningStates, pausedStates)
)

// listQuery is the parsed query of a list call.
type listQuery struct {
	filter  sandbox.Filter
	running bool   // running sandboxes are requested
	empty   bool   // no sandbox can match
	ref     string // template to filter by, or ""
}

func (a *api) listV2(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	q, err := parseListQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	if err := a.resolveTemplate(r.Context(), &q); err != nil {
		return err
	}
	if q.empty {
		// The number of running sandboxes does not depend on the filter.
		q.filter = sandbox.Filter{States: runningStates, Limit: 1}
	}
	page, err := a.Finder.List(r.Context(), caller, q.filter)
	if err != nil {
		return err
	}
	if q.empty {
		page.Sandboxes, page.More = nil, false
	}
	if q.running {
		w.Header().Set("X-Total-Running", strconv.Itoa(page.Running))
	}
	if n := len(page.Sandboxes); page.More && n > 0 {
		last := page.Sandboxes[n-1]
		w.Header().Set("X-Next-Token", pageToken{last.StartedAt, last.ID, q.filter.Ascending}.String())
	}
	writeJSON(w, http.StatusOK, rows(page.Sandboxes))
	return nil
}

// listV1 returns all running sandboxes at once, from all pages of the service, because its clients
// do not support pages.
func (a *api) listV1(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	query, err := queryOf(r.URL.RawQuery)
	if err != nil {
		return err
	}
	metadata, err := parseMetadata(query.Get("metadata"))
	if err != nil {
		return err
	}
	f := sandbox.Filter{States: runningStates, Metadata: metadata, Limit: maxPage}
	all := []listedBody{}
	for {
		page, err := a.Finder.List(r.Context(), caller, f)
		if err != nil {
			return err
		}
		all = append(all, rows(page.Sandboxes)...)
		if !page.More || len(page.Sandboxes) == 0 {
			break
		}
		last := page.Sandboxes[len(page.Sandboxes)-1]
		f.AfterTime, f.AfterID = last.StartedAt, last.ID
	}
	writeJSON(w, http.StatusOK, all)
	return nil
}

func rows(sandboxes []sandbox.Sandbox) []listedBody {
	listed := make([]listedBody, 0, len(sandboxes))
	for _, s := range sandboxes {
		listed = append(listed, listedBodyOf(s))
	}
	return listed
}

// queryOf strictly parses a query. If a filter were ignored, the answer would contain rows that
// were not requested.
func queryOf(raw string) (url.Values, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, invalidQuery("the query")
	}
	return values, nil
}

func invalidQuery(what string) error {
	return fault.Newf(fault.Invalid, "query_invalid", "%s is malformed", what)
}

func parseListQuery(raw string) (listQuery, error) {
	values, err := queryOf(raw)
	if err != nil {
		return listQuery{}, err
	}
	q := listQuery{ref: values.Get("template")}
	if q.filter.Metadata, err = parseMetadata(values.Get("metadata")); err != nil {
		return listQuery{}, err
	}
	if q.filter.States, err = parseStates(values["state"]); err != nil {
		return listQuery{}, err
	}
	q.running = slices.Contains(q.filter.States, sandbox.Running)
	if q.filter.Ascending, err = parseOrder(values.Get("order")); err != nil {
		return listQuery{}, err
	}
	if q.filter.Limit, err = parseLimit(values.Get("limit"), maxPage, maxPage); err != nil {
		return listQuery{}, err
	}
	if s := values.Get("startedAfter"); s != "" {
		if q.filter.StartedAfter, err = time.Parse(time.RFC3339Nano, s); err != nil {
			return listQuery{}, invalidQuery("startedAfter")
		}
	}
	if s := values.Get("nextToken"); s != "" {
		t, err := parsePageToken(s, q.filter.Ascending)
		if err != nil {
			return listQuery{}, err
		}
		q.filter.AfterTime, q.filter.AfterID = t.after, t.id
	}
	return q, nil
}

// parseStates parses states, which are separated by commas or repeated. None means all.
func parseStates(values []string) ([]sandbox.State, error) {
	joined := strings.Join(values, ",")
	if joined == "" {
		return visibleStates, nil
	}
	var running, paused []sandbox.State
	for s := range strings.SplitSeq(joined, ",") {
		switch s {
		case stateRunning:
			running = runningStates
		case statePaused:
			paused = pausedStates
		default:
			return nil, invalidQuery("state")
		}
	}
	return slices.Concat(running, paused), nil
}

func parseOrder(s string) (ascending bool, err error) {
	switch s {
	case "", "desc":
		return false, nil
	case "asc":
		return true, nil
	}
	return false, invalidQuery("order")
}

func parseLimit(s string, fallback, limit int) (int, error) {
	if s == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > limit {
		return 0, fault.Newf(fault.Invalid, "limit_invalid", "limit must be between 1 and %d", limit)
	}
	return n, nil
}

// resolveTemplate sets the ID of the template in the filter. A template that does not exist matches
// no sandbox.
func (a *api) resolveTemplate(ctx context.Context, q *listQuery) error {
	if q.ref == "" {
		return nil
	}
	if strings.Contains(q.ref, ":") {
		return fault.New(fault.Invalid, "template_filter_invalid", "the template filter must not contain a tag")
	}
	ref, err := sandbox.ParseReference(q.ref)
	if err != nil {
		return err
	}
	t, err := a.Templates.Resolve(ctx, ref)
	if fault.KindOf(err) == fault.NotFound {
		q.empty = true
		return nil
	}
	if err != nil {
		return err
	}
	q.filter.TemplateID = t.ID
	return nil
}
