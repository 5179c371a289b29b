package policy

import "time"

func (r RuleLimits) limits(rule string) Limits {
	if r == (RuleLimits{}) {
		return Limits{}
	}
	return Limits{Rule: rule, Requests: r.Requests, Window: time.Duration(r.Per), Bytes: r.Bytes, Connections: r.Connections}
}

// tighter lays a lower layer's limits under an upper one's. What is left is
// counted under the upper's rule.
func tighter(upper, lower Limits) Limits {
	if upper == (Limits{}) {
		return lower
	}
	out := upper
	if lower.Requests > 0 && (out.Requests == 0 || slower(lower, out)) {
		out.Requests, out.Window = lower.Requests, lower.Window
	}
	out.Bytes = smaller(out.Bytes, lower.Bytes)
	out.Connections = smaller(out.Connections, lower.Connections)
	return out
}

// slower compares rates. Both have requests and a window.
func slower(a, b Limits) bool {
	return float64(a.Requests)*b.Window.Seconds() < float64(b.Requests)*a.Window.Seconds()
}

// smaller is the smaller of two bounds, of which zero is none.
func smaller[T int | int64 | Duration](a, b T) T {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
