package payload

// Console is the data of console.invited, console.signed_in and console.signed_out. It describes
// links and sessions, but never has the credentials that open them.
type Console struct {
	Session   string `json:"session,omitempty"` // absent for a link that has not been used
	Name      string `json:"name,omitempty"`
	Scope     string `json:"scope"`                // viewer, operator or admin
	Seconds   int64  `json:"seconds,omitempty"`    // lifetime of the session that a link starts
	ExpiresAt string `json:"expires_at,omitempty"` // RFC 3339
	// Reason is signed_out, revoked or expired.
	Reason string `json:"reason,omitempty"`
}
