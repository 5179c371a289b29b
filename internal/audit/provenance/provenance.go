// Package provenance owns the signed statements about what came out of a
// sandbox: their form, which is in-toto's with SLSA's predicate in a DSSE
// envelope, the key that signs them, and their verification, for which no
// server is needed. What is stated is the business of who knows it.
package provenance

import "time"

const (
	// PayloadType says that an envelope holds a statement of in-toto.
	PayloadType = "application/vnd.in-toto+json"
	// EnvelopeType is the media type of an envelope.
	EnvelopeType = "application/vnd.dsse.envelope.v1+json"
	// BuildType names the form of our external and internal parameters.
	BuildType = "https://github.com/crannog/crannog/docs/provenance.md#export-v1"

	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://slsa.dev/provenance/v1"
)

// Statement is an in-toto statement, version 1, about SLSA provenance, version
// 1. Its fields have the names and the order of these.
type Statement struct {
	Type          string     `json:"_type"`
	Subject       []Resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     Predicate  `json:"predicate"`
}

// Resource is something with a digest, in the form of in-toto's resource
// descriptors. As a subject it is the file that was written, whose name has no
// slash in front, or a file in it, by its path in the sandbox.
type Resource struct {
	Name        string            `json:"name,omitempty"`
	URI         string            `json:"uri,omitempty"`
	Digest      *Digest           `json:"digest,omitempty"`
	MediaType   string            `json:"mediaType,omitempty"`
	Content     []byte            `json:"content,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Digest is what a resource must have, in hexadecimal.
type Digest struct {
	SHA256    string `json:"sha256,omitempty"`
	GitCommit string `json:"gitCommit,omitempty"`
}

// Predicate says how the subjects came about.
type Predicate struct {
	BuildDefinition BuildDefinition `json:"buildDefinition"`
	RunDetails      RunDetails      `json:"runDetails"`
}

// BuildDefinition is what was asked for, and what it began with.
type BuildDefinition struct {
	BuildType            string     `json:"buildType"`
	ExternalParameters   External   `json:"externalParameters"`
	InternalParameters   Internal   `json:"internalParameters"`
	ResolvedDependencies []Resource `json:"resolvedDependencies,omitempty"`
}

// External is what callers chose. What ran inside is not in it, because
// arguments may hold secrets: the record has them.
type External struct {
	Template string `json:"template,omitempty"` // as it was asked for
	// Policy is the digest of the policy that governed the sandbox when the
	// files came out, Level the level that it was made from.
	Policy string `json:"policy"`
	Level  string `json:"level"`
	// Out is tar or patch, of what is written to a file, or apply.
	Out   string `json:"out"`
	Dir   string `json:"dir"`   // inside
	Since string `json:"since"` // start, or a snapshot
}

// Internal is what the server chose, or found.
type Internal struct {
	Engine   string `json:"engine,omitempty"`
	Boundary string `json:"boundary,omitempty"`
	// Origin is the snapshot that the sandbox was made of, Parent the sandbox
	// that it is a copy of.
	Origin string `json:"origin,omitempty"`
	Parent string `json:"parent,omitempty"`
	// Changes is the digest of exactly the changes that came out, as the
	// record and approvals name them; Removals is how many of them remove.
	Changes  string `json:"changes"`
	Removals int    `json:"removals"`
	// Masked is in how many of the files values of sealed secrets were masked,
	// so that they are not as they are inside.
	Masked   int    `json:"masked,omitempty"`
	Approval string `json:"approval,omitempty"`
}

// RunDetails are about the one sandbox.
type RunDetails struct {
	Builder  Builder  `json:"builder"`
	Metadata Metadata `json:"metadata"`
	// Byproducts has the checkpoint of the record.
	Byproducts []Resource `json:"byproducts,omitempty"`
}

// Builder is the server.
type Builder struct {
	ID      string            `json:"id"`
	Version map[string]string `json:"version"`
}

// Metadata says which sandbox it was, when it started and when the files came
// out.
type Metadata struct {
	InvocationID string     `json:"invocationId"`
	StartedOn    *time.Time `json:"startedOn,omitempty"`
	FinishedOn   *time.Time `json:"finishedOn,omitempty"`
}
