package packages

import "time"

// Gate decides whether a sandbox may get a package, or with a version that version. known is false
// while nothing but the name is known. Nil means that it may.
type Gate func(a Artifact, v Version, known bool) *Denial

// Denial is why a sandbox may not get something.
type Denial struct {
	Rule, Layer, Reason string
	// Hidden is set if the version is to look as if it did not exist.
	Hidden bool
}

// Verdicts about an answer.
const (
	Passed   = "passed"
	Filtered = "filtered" // versions were removed from a document
	Refused  = "refused"
)

// Fact is what an audit entry says about an answer of the cache.
type Fact struct {
	Ecosystem Ecosystem `json:"ecosystem"`
	Name      string    `json:"name"`
	Version   string    `json:"version,omitempty"`
	// Hash is the registry's digest of a file, and the SHA-256 of a document.
	Hash    string `json:"hash,omitempty"`
	Verdict string `json:"verdict"`
	// Cached is set if nothing was fetched for the answer.
	Cached bool `json:"cached,omitempty"`
	// Withheld are versions that were removed from a document, at most MostWithheld of them.
	Withheld []string `json:"withheld,omitempty"`
	// Scripts are the scripts that the version runs when it is installed.
	Scripts []string `json:"scripts,omitempty"`
}

// MostWithheld limits the versions that an entry names.
const MostWithheld = 20

// Young returns whether a version was published less than a time ago. One that was published at an
// unknown time counts as young.
func Young(v Version, age time.Duration, now time.Time) bool {
	return age > 0 && (v.Published.IsZero() || now.Sub(v.Published) < age)
}
