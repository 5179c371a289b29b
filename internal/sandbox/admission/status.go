package admission

import "time"

// Status describes a Queue at one moment.
type Status struct {
	AtOnce      int           // greatest number of starts at once now
	Starting    int           // callers whose sandbox is being started
	Background  int           // background work that is being done
	Waiting     int           // callers that wait
	MaxWaiting  int           // greatest number that may wait
	ServiceTime time.Duration // of one start, averaged; 0 before the first
	// Wait is the expected wait of a new caller whose key has no other caller waiting. It is 0
	// until the first start has been measured.
	Wait   time.Duration
	Totals Totals
}

// Place is a caller's place in a Queue.
type Place struct {
	Label, Sandbox string
	Place          int           // 1 is the next
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
		AtOnce: q.limit.now, Starting: q.running, Background: q.spare, Waiting: q.lines.count, MaxWaiting: q.maxWaiting,
		ServiceTime: q.service.value, Totals: q.totals,
	}
	if q.running >= q.limit.now {
		s.Wait, _ = q.expected(q.lines.place(len(q.lines.lines), 0))
	}
	return s
}

// Places returns the places of the callers of a key, or of all keys if all is set: first those that
// only wait for other processes, then the queue.
func (q *Queue) Places(key string, all bool) []Place {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	var out []Place
	for e, ahead := range q.others {
		if all || e.ask.Key == key {
			p := Place{Label: e.ask.Label, Sandbox: e.ask.Sandbox, Place: ahead + 1, Waited: now.Sub(e.since)}
			p.Expected, _ = q.expected(p.Place)
			out = append(out, p)
		}
	}
	for at, l := range q.lines.lines {
		if !all && l.key != key {
			continue
		}
		for i, e := range l.entries {
			p := Place{Label: e.ask.Label, Sandbox: e.ask.Sandbox, Place: q.lines.place(at, i), Waited: now.Sub(e.since)}
			p.Expected, _ = q.expected(p.Place)
			out = append(out, p)
		}
	}
	return out
}
