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
	// Findings are the reasons why the verification fails.
	Findings []ProvenanceFinding `json:"findings,omitempty"`
	// Subject is the subject of the statement that the file matches.
	Subject string `json:"subject,omitempty"`
	SHA256  string `json:"sha256" doc:"Of the file."`
	Key     string `json:"key" doc:"ID of the key that verified the signature."`
	// RecordKey is the key with which the signed tree head was verified; "" if it was not.
	RecordKey string `json:"record_key,omitempty"`
	// Statement is the signed statement. It is set only if the signature is valid.
	Statement json.RawMessage `json:"statement,omitempty"`
}

// ProvenanceFinding is one reason why the verification fails.
type ProvenanceFinding struct {
	Fault string `json:"fault" enum:"envelope,type,signatures,key,signature,statement,artifact,name,policy,record"`
	Text  string `json:"text"`
}
