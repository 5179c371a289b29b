package payload

// Console is the data of console.invited, console.signed_in and
// console.signed_out: of links and sessions, never what opens them.
type Console struct {
	Session   string `json:"session,omitempty"` // absent of a link that has not been used yet
	Name      string `json:"name,omitempty"`
	Scope     string `json:"scope"`                // viewer, operator or admin
	Seconds   int64  `json:"seconds,omitempty"`    // life of the session that a link becomes
	ExpiresAt string `json:"expires_at,omitempty"` // RFC 3339
	// Reason is signed_out, revoked or expired.
	Reason string `json:"reason,omitempty"`
}
