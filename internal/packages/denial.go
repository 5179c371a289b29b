package packages

import "time"

// Gate returns why a sandbox may not get a package, or one version of it. Nil means that it may. If
// known is false, only the package's name is known yet.
type Gate func(a Artifact, v Version, known bool) *Denial

// Denial is the reason why a sandbox may not get a package.
type Denial struct {
	Rule, Layer, Reason string
	// Hidden is set if the version must look as if it did not exist.
	Hidden bool
}

// RuleDenied is the rule of a Denial because of a list of packages that may not be installed.
const RuleDenied = "packages.deny"

// Verdicts about an answer.
const (
	Passed   = "passed"
	Filtered = "filtered" // versions were removed from a document
	Refused  = "refused"
	// Unverified is the verdict about a file without a digest of its registry, which the policy
	// permits.
	Unverified = "unverified"
)

// Fact describes an answer of the cache in an audit entry.
type Fact struct {
	Ecosystem Ecosystem `json:"ecosystem"`
	Name      string    `json:"name"`
	Version   string    `json:"version,omitempty"`
	// Hash is the registry's digest of a file, or the SHA-256 of a document.
	Hash    string `json:"hash,omitempty"`
	Verdict string `json:"verdict"`
	// Cached is set if nothing was fetched for the answer.
	Cached bool `json:"cached,omitempty"`
	// Fetched are the bytes that were received from registries for the answer.
	Fetched int64 `json:"fetched_bytes,omitempty"`
	// Withheld are versions that were removed from a document, at most MaxWithheld of them.
	Withheld []string `json:"withheld,omitempty"`
	// Scripts are the scripts that the version runs when it is installed.
	Scripts []string `json:"scripts,omitempty"`
	// Advisories are the IDs of advisories that affect the version, or removed versions of a
	// document, at most MaxAdvisories of them.
	Advisories []string `json:"advisories,omitempty"`
	// Scan is the result of a scan, with the version of the scanner and of its database.
	Scan string `json:"scan,omitempty"`
	// Findings are what an inspection of the content found, at most one of each kind.
	Findings []string `json:"findings,omitempty"`
}

// MaxWithheld limits how many removed versions an audit entry names.
const MaxWithheld = 20

// Young reports whether a version was published less than age ago. A version with an unknown time
// counts as young.
func Young(v Version, age time.Duration, now time.Time) bool {
	at := v.Published
	if at.IsZero() {
		at = v.NotAfter
	}
	return age > 0 && (at.IsZero() || now.Sub(at) < age)
}
