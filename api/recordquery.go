package api

// VerifyRecord is the body of POST /v1/record/verify.
type VerifyRecord struct {
	Against []string `json:"against,omitempty" maxItems:"1000" doc:"Checkpoints that were handed out earlier, as signed notes. A history that was written anew does not fit them."`
}

// RecordKey is the answer of GET /v1/record/key.
type RecordKey struct {
	Key string `json:"key" doc:"The verifier key of the record, in the form of a signed note's. Keep it elsewhere: who checks an exported file needs it from somebody they trust."`
}
