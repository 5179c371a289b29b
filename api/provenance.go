package api

import "encoding/json"

// ProvenanceKey is the answer of GET /v1/provenance/key.
type ProvenanceKey struct {
	ID  string `json:"id" doc:"SHA-256 of the key's DER form, as envelopes name it."`
	Key string `json:"key" doc:"The public key, Ed25519, in PEM."`
}

// ProvenanceCheck is the result of verifying a file with its provenance.
type ProvenanceCheck struct {
	OK bool `json:"ok"`
	// Findings are what does not hold.
	Findings []ProvenanceFinding `json:"findings,omitempty"`
	// Subject is what the file is, of all that came out.
	Subject string `json:"subject,omitempty"`
	SHA256  string `json:"sha256" doc:"Of the file."`
	Key     string `json:"key" doc:"ID of the key that verified the signature."`
	// RecordKey is the key that the record's checkpoint was verified with; ""
	// if it was not.
	RecordKey string `json:"record_key,omitempty"`
	// Statement is what was signed. It is there only if the signature holds.
	Statement json.RawMessage `json:"statement,omitempty"`
}

// ProvenanceFinding is one statement that does not hold.
type ProvenanceFinding struct {
	Fault string `json:"fault" enum:"envelope,type,signatures,key,signature,statement,artifact,name,policy,record"`
	Text  string `json:"text"`
}
