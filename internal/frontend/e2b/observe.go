package e2b

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

const (
	maxLogs  = 1000
	maxBatch = 100
)

func (a *api) metrics(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	query, err := queryOf(r.URL.RawQuery)
	if err != nil {
		return err
	}
	from, err := parseUnix(query, "start", time.Second)
	if err != nil {
		return err
	}
	to, err := parseUnix(query, "end", time.Second)
	if err != nil {
		return err
	}
	if !from.IsZero() && !to.IsZero() && to.Before(from) {
		return fault.New(fault.Invalid, "query_invalid", "end is before start")
	}
	found, err := a.existing(r, caller)
	if err != nil {
		return err
	}
	if found.State != sandbox.Running {
		// A sandbox that does not run has no measurements.
		writeJSON(w, http.StatusOK, []metricBody{})
		return nil
	}
	samples, err := a.Monitor.Metrics(r.Context(), caller, found.ID, from, to)
	if err != nil {
		return notFoundAs(err, found.ID)
	}
	bodies := make([]metricBody, 0, len(samples))
	for _, m := range samples {
		bodies = append(bodies, metricBodyOf(m))
	}
	writeJSON(w, http.StatusOK, bodies)
	return nil
}

// metricsOfMany returns the newest sample of each sandbox. It omits sandboxes that do not run.
func (a *api) metricsOfMany(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	query, err := queryOf(r.URL.RawQuery)
	if err != nil {
		return err
	}
	joined := strings.Join(query["sandbox_ids"], ",")
	if joined == "" {
		return fault.New(fault.Invalid, "sandbox_ids_missing", "sandbox_ids is required")
	}
	ids := strings.Split(joined, ",")
	if len(ids) > maxBatch {
		return fault.Newf(fault.Invalid, "sandbox_ids_invalid", "at most %d sandbox_ids", maxBatch)
	}
	newest := map[string]metricBody{}
	for _, raw := range ids {
		id, err := sandboxID(raw)
		if err != nil {
			return err
		}
		samples, err := a.Monitor.Metrics(r.Context(), caller, id, time.Time{}, time.Time{})
		if fault.KindOf(err) == fault.NotFound {
			continue
		}
		if err != nil {
			return err
		}
		if len(samples) > 0 {
			newest[id] = metricBodyOf(samples[len(samples)-1])
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"sandboxes": newest})
	return nil
}

func metricBodyOf(m sandbox.Metric) metricBody {
	return metricBody{
		Timestamp:     wireTime(m.At),
		TimestampUnix: m.At.Unix(),
		CPUCount:      int64(math.Ceil(m.CPUCount)),
		CPUUsedPct:    math.Round(m.CPUPercent*100) / 100,
		MemUsed:       m.MemUsed,
		MemTotal:      m.MemTotal,
		MemCache:      m.MemCache,
		DiskUsed:      m.DiskUsed,
		DiskTotal:     m.DiskTotal,
	}
}

// logsV1 returns both forms of an entry that clients of the first generation read.
func (a *api) logsV1(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	q, err := parseLogQuery(r.URL.RawQuery, "start")
	if err != nil {
		return err
	}
	entries, err := a.logs(r, caller, q)
	if err != nil {
		return err
	}
	lines := make([]logLine, 0, len(entries))
	for _, e := range entries {
		line, err := lineOf(e)
		if err != nil {
			return err
		}
		lines = append(lines, logLine{Timestamp: e.Timestamp, Line: line})
	}
	writeJSON(w, http.StatusOK, map[string]any{"logs": lines, "logEntries": entries})
	return nil
}

// logSource is the source of all entries. E2B's own command line filters by it.
const logSource = "sandbox"

// lineOf returns an entry as the JSON object that E2B's own command line parses from each line. The
// command line needs a level and a logger, and shows all other fields.
func lineOf(e logEntry) (string, error) {
	object := maps.Clone(e.Fields)
	object["level"], object["logger"], object["message"] = e.Level, logSource, e.Message
	line, err := json.Marshal(object)
	if err != nil {
		return "", fmt.Errorf("encode a log entry: %w", err)
	}
	return string(line), nil
}

func (a *api) logsV2(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	q, err := parseLogQuery(r.URL.RawQuery, "cursor")
	if err != nil {
		return err
	}
	entries, err := a.logs(r, caller, q)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"logs": entries})
	return nil
}

// levels are the log levels in ascending order. A query returns its level and all higher ones.
var levels = []string{"debug", "info", "warn", "error"}

type logQuery struct {
	cursor   time.Time
	limit    int
	backward bool
	level    int
	search   string
}

func parseLogQuery(raw, cursor string) (logQuery, error) {
	values, err := queryOf(raw)
	if err != nil {
		return logQuery{}, err
	}
	q := logQuery{search: values.Get("search")}
	if q.cursor, err = parseUnix(values, cursor, time.Millisecond); err != nil {
		return logQuery{}, err
	}
	if q.limit, err = parseLimit(values.Get("limit"), maxLogs, maxLogs); err != nil {
		return logQuery{}, err
	}
	switch values.Get("direction") {
	case "", "forward":
	case "backward":
		q.backward = true
	default:
		return logQuery{}, invalidQuery("direction")
	}
	if s := values.Get("level"); s != "" {
		if q.level = slices.Index(levels, s); q.level < 0 {
			return logQuery{}, invalidQuery("level")
		}
	}
	return q, nil
}

// logs returns the entries that a query requests, from its cursor on in its direction.
func (a *api) logs(r *http.Request, caller sandbox.Principal, q logQuery) ([]logEntry, error) {
	found, err := a.known(r, caller)
	if err != nil {
		return nil, err
	}
	all, err := a.Monitor.Logs(r.Context(), caller, found.ID)
	if err != nil {
		return nil, notFoundAs(err, found.ID)
	}
	if q.backward {
		all = slices.Clone(all) // the service may share the returned slice
		slices.Reverse(all)
	}
	selected := []logEntry{}
	for _, e := range all {
		if len(selected) == q.limit {
			break
		}
		if q.matches(e) {
			selected = append(selected, logEntryOf(e))
		}
	}
	return selected, nil
}

func (q logQuery) matches(e sandbox.LogEntry) bool {
	at := e.At.Truncate(time.Millisecond)
	switch {
	case q.cursor.IsZero():
	case q.backward && at.After(q.cursor), !q.backward && at.Before(q.cursor):
		return false
	}
	return slices.Index(levels, levelOf(e)) >= q.level && strings.Contains(e.Message, q.search)
}

// levelOf returns one of the levels that clients know.
func levelOf(e sandbox.LogEntry) string {
	if slices.Contains(levels, e.Level) {
		return e.Level
	}
	return "info"
}

func logEntryOf(e sandbox.LogEntry) logEntry {
	fields := e.Fields
	if fields == nil {
		fields = map[string]string{}
	}
	return logEntry{Timestamp: wireTime(e.At), Message: e.Message, Level: levelOf(e), Fields: fields}
}

// parseUnix parses a time in units since 1970; absent means the zero time.
func parseUnix(values url.Values, name string, unit time.Duration) (time.Time, error) {
	s := values.Get(name)
	if s == "" {
		return time.Time{}, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/int64(unit) {
		return time.Time{}, invalidQuery(name)
	}
	return time.Unix(0, n*int64(unit)), nil
}
