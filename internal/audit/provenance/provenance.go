// Package provenance owns the signed statements about files that were exported from a sandbox, and
// about images that were built in sandboxes. Their format is in-toto with the SLSA predicate in a DSSE envelope. The package signs and
// verifies; verification needs no server. Callers supply the facts.
package provenance

import "time"

const (
	// PayloadType is the media type of an in-toto statement in an envelope.
	PayloadType = "application/vnd.in-toto+json"
	// EnvelopeType is the media type of an envelope.
	EnvelopeType = "application/vnd.dsse.envelope.v1+json"
	// BuildType identifies the format of Crannog's external and internal parameters.
	BuildType = "https://github.com/crannog/crannog/docs/provenance.md#export-v1"

	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://slsa.dev/provenance/v1"
)

// Statement is an in-toto statement, version 1, with SLSA provenance, version 1. These standards
// define the names and the order of the fields.
type Statement struct {
	Type          string     `json:"_type"`
	Subject       []Resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     Predicate  `json:"predicate"`
}

// Resource is a resource descriptor of in-toto. As a subject it is either the written file, whose
// name has no leading slash, or a file in it, by its path in the sandbox.
type Resource struct {
	Name        string            `json:"name,omitempty"`
	URI         string            `json:"uri,omitempty"`
	Digest      *Digest           `json:"digest,omitempty"`
	MediaType   string            `json:"mediaType,omitempty"`
	Content     []byte            `json:"content,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Digest is the digest of a resource, in hexadecimal.
type Digest struct {
	SHA256    string `json:"sha256,omitempty"`
	GitCommit string `json:"gitCommit,omitempty"`
}

// Predicate describes how the subjects were created.
type Predicate struct {
	BuildDefinition BuildDefinition `json:"buildDefinition"`
	RunDetails      RunDetails      `json:"runDetails"`
}

// BuildDefinition describes the request and its inputs.
type BuildDefinition struct {
	BuildType            string     `json:"buildType"`
	ExternalParameters   External   `json:"externalParameters"`
	InternalParameters   Internal   `json:"internalParameters"`
	ResolvedDependencies []Resource `json:"resolvedDependencies,omitempty"`
}

// External has what callers chose. It has no commands, because arguments may contain secrets; the
// audit log has them.
type External struct {
	Template string `json:"template,omitempty"` // the template as requested
	// Policy is the digest of the policy that was in force at the export. Level is the level that
	// it extends.
	Policy string `json:"policy"`
	Level  string `json:"level"`
	// Out is tar or patch for a written file, or apply.
	Out   string `json:"out"`
	Dir   string `json:"dir"`   // directory inside
	Since string `json:"since"` // start, or a snapshot
}

// Internal has what the server chose or determined.
type Internal struct {
	Engine   string `json:"engine,omitempty"`
	Boundary string `json:"boundary,omitempty"`
	// Origin is the snapshot from which the sandbox started. Parent is the sandbox from which it
	// was forked.
	Origin string `json:"origin,omitempty"`
	Parent string `json:"parent,omitempty"`
	// Changes is the digest of exactly the exported changes, as in the audit log and in approval
	// requests. Removals is the number of removed files.
	Changes  string `json:"changes"`
	Removals int    `json:"removals"`
	// Masked is the number of files in which values of secrets were redacted, so that they differ
	// from the files inside.
	Masked   int    `json:"masked,omitempty"`
	Approval string `json:"approval,omitempty"`
}

// RunDetails describes the sandbox or the build.
type RunDetails struct {
	Builder  Builder  `json:"builder"`
	Metadata Metadata `json:"metadata"`
	// Byproducts has the signed tree head of the audit log.
	Byproducts []Resource `json:"byproducts,omitempty"`
}

// Builder is the server.
type Builder struct {
	ID      string            `json:"id"`
	Version map[string]string `json:"version"`
}

// Metadata has the ID of the sandbox or build, its start time, and the time of the export or end.
type Metadata struct {
	InvocationID string     `json:"invocationId"`
	StartedOn    *time.Time `json:"startedOn,omitempty"`
	FinishedOn   *time.Time `json:"finishedOn,omitempty"`
}
