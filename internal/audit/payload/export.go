package payload

// Export is the data of export: changes are about to leave a sandbox.
type Export struct {
	// To is the host directory to which the changes are applied, the format (tar or patch), or diff
	// if they were shown with their text.
	To string `json:"to"`
	// Digest is the digest of exactly these changes.
	Digest    string `json:"digest"`
	Files     int    `json:"files"`     // created or changed
	Deletions int    `json:"deletions"` // files removed inside
	// Masked is the number of files in which values of secrets were redacted.
	Masked int `json:"masked,omitempty"`
	// Flagged lists paths that are protected or that tools execute by themselves, at most the first
	// hundred.
	Flagged  []string `json:"flagged,omitempty"`
	Rule     string   `json:"rule"`
	Policy   string   `json:"policy"` // digest of the policy
	Approval string   `json:"approval,omitempty"`
}

// Provenance is the data of provenance.signed: a statement about exported files or about an image is
// about to be returned.
type Provenance struct {
	// Artifact is the SHA-256 of the written file or of the image's manifest. It is "" if the files
	// themselves are exported.
	Artifact string `json:"artifact,omitempty"`
	Subjects int    `json:"subjects"`
	// Envelope is the SHA-256 of the signed statement with its signature. Key is the ID of the key.
	Envelope string `json:"envelope"`
	Key      string `json:"key"`
	Digest   string `json:"digest"` // digest of the changes, as in export; "" for an image
	Policy   string `json:"policy"` // digest of the policy
	// Checkpoint is the size of the audit log that the statement names.
	Checkpoint int64 `json:"checkpoint"`
}
