package api

// VerifyRecord is the body of POST /v1/audit/verify.
type VerifyRecord struct {
	Against []string `json:"against,omitempty" maxItems:"1000" doc:"Earlier signed tree heads, as signed notes. A history that was written anew does not match them."`
}

// RecordKey is the answer of GET /v1/audit/key.
type RecordKey struct {
	Key string `json:"key" doc:"Public key of the audit log, as a verifier key of signed notes. Keep it on another machine: verifying an exported file needs the key from a trusted source."`
}
