package policy

import "time"

// limits converts the limits of a rule.
func (r RuleLimits) limits(rule string) Limits {
	if r == (RuleLimits{}) {
		return Limits{}
	}
	return Limits{Rule: rule, Requests: r.Requests, Window: time.Duration(r.Per), Bytes: r.Bytes, Connections: r.Connections}
}

// tighter combines the limits of a lower and an upper layer. The result counts under the upper
// layer's rule.
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

// slower reports whether a allows fewer requests per second than b. Both must have requests and a
// window.
func slower(a, b Limits) bool {
	return float64(a.Requests)*b.Window.Seconds() < float64(b.Requests)*a.Window.Seconds()
}

// smaller returns the smaller of two limits, where zero means no limit.
func smaller[T int | int64 | Duration](a, b T) T {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
