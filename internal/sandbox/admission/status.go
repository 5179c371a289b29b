package admission

import "time"

// Status describes a Queue at one moment.
type Status struct {
	AtOnce      int           // current limit of simultaneous starts
	Starting    int           // callers whose sandbox is being started
	Background  int           // background work that is being done
	Waiting     int           // callers that wait
	MaxWaiting  int           // greatest number that may wait
	ServiceTime time.Duration // of one start, averaged; 0 before the first
	// Wait is the expected wait of a new caller whose key has no other caller waiting. It is 0
	// if a start is possible at once, or if no start has been measured yet.
	Wait   time.Duration
	Totals Totals
}

// Position is a caller's place in a Queue.
type Position struct {
	Label, Sandbox string
	Number         int           // 1 is the next
	Waited         time.Duration // until now
	Expected       time.Duration // from now on; 0 before the first start has been measured
}

// expected returns how long the caller at a place will wait, if that is known. q.mu must be held.
func (q *Queue) expected(place int) (time.Duration, bool) {
	if q.service.value == 0 {
		return 0, false
	}
	return time.Duration(place) * q.service.value / time.Duration(q.limit.now), true
}

// Status returns the present state.
func (q *Queue) Status() Status {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := Status{
		AtOnce: q.limit.now, Starting: q.running, Background: q.background, Waiting: q.lines.count, MaxWaiting: q.maxWaiting,
		ServiceTime: q.service.value, Totals: q.totals,
	}
	if q.running >= q.limit.now {
		s.Wait, _ = q.expected(q.lines.position(len(q.lines.lines), 0))
	}
	return s
}

// Positions returns the places of the callers of a key, or of all keys if all is set: first those
// that only wait for other processes, then the queue.
func (q *Queue) Positions(key string, all bool) []Position {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	var out []Position
	for e, ahead := range q.preceding {
		if all || e.request.Key == key {
			p := Position{Label: e.request.Label, Sandbox: e.request.Sandbox, Number: ahead + 1, Waited: now.Sub(e.since)}
			p.Expected, _ = q.expected(p.Number)
			out = append(out, p)
		}
	}
	for at, l := range q.lines.lines {
		if !all && l.key != key {
			continue
		}
		for i, e := range l.entries {
			p := Position{Label: e.request.Label, Sandbox: e.request.Sandbox, Number: q.lines.position(at, i), Waited: now.Sub(e.since)}
			p.Expected, _ = q.expected(p.Number)
			out = append(out, p)
		}
	}
	return out
}
