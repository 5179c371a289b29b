package payload

// Export is the data of export: changes that are about to come out of a
// sandbox.
type Export struct {
	// To is the host directory that they are applied to, or tar or patch, or
	// diff if they were shown with their text.
	To string `json:"to"`
	// Digest names exactly these changes.
	Digest    string `json:"digest"`
	Files     int    `json:"files"`     // created or changed
	Deletions int    `json:"deletions"` // removed inside
	// Masked is in how many of the files values of sealed secrets were masked.
	Masked int `json:"masked,omitempty"`
	// Flagged are paths that are protected or that tools run by themselves, of
	// many the first hundred.
	Flagged  []string `json:"flagged,omitempty"`
	Rule     string   `json:"rule"`
	Policy   string   `json:"policy"` // digest
	Approval string   `json:"approval,omitempty"`
}

// Provenance is the data of provenance.signed: a statement about what comes out
// of a sandbox is about to be handed out.
type Provenance struct {
	// Artifact is the SHA-256 of the file that was written, "" where the files
	// themselves are brought out.
	Artifact string `json:"artifact,omitempty"`
	Subjects int    `json:"subjects"`
	// Envelope is the SHA-256 of the signed statement with its signature, Key
	// names the key that made that.
	Envelope string `json:"envelope"`
	Key      string `json:"key"`
	Digest   string `json:"digest"` // of exactly the changes, as in export
	Policy   string `json:"policy"` // digest
	// Checkpoint is the size of the record that the statement names.
	Checkpoint int64 `json:"checkpoint"`
}
