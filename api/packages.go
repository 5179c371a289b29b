package api

import "time"

// PackageFact describes an answer of the package cache in a FlowRecord.
type PackageFact struct {
	Ecosystem string   `json:"ecosystem"`
	Name      string   `json:"name"`
	Version   string   `json:"version,omitempty"`
	Hash      string   `json:"hash,omitempty" doc:"The registry's digest of a file, or the SHA-256 of a document."`
	Verdict   string   `json:"verdict" doc:"passed, filtered, unverified or refused."`
	Cached    bool     `json:"cached,omitempty" doc:"Nothing was fetched for the answer."`
	Fetched   int64    `json:"fetched_bytes,omitempty" doc:"Bytes that were received from registries for the answer."`
	Withheld  []string `json:"withheld,omitempty" doc:"Versions that were removed from a document."`
	Scripts   []string `json:"scripts,omitempty" doc:"Scripts that the version runs when it is installed."`

	Advisories []string `json:"advisories,omitempty" doc:"IDs of advisories that affect the version, or removed versions of a document, if the policy has packages.advisories."`
	Scan       string   `json:"scan,omitempty" doc:"Result of the scan, with the version of the scanner, if the policy has packages.scan."`
	Findings   []string `json:"findings,omitempty" doc:"What an inspection of the content found, if the policy has packages.content."`
}

// CachedPackage is one stored answer of a registry.
type CachedPackage struct {
	URL       string    `json:"url"`
	Ecosystem string    `json:"ecosystem"`
	Name      string    `json:"name"`
	Version   string    `json:"version,omitempty" doc:"Absent for a document about all versions."`
	SHA256    string    `json:"sha256"`
	Bytes     int64     `json:"size_bytes"`
	Integrity string    `json:"integrity,omitempty" doc:"The registry's digest that the file was verified against."`
	FetchedAt time.Time `json:"fetched_at"`
	UsedAt    time.Time `json:"used_at"`
}

// PackageCache is the answer of GET /v1/package-cache.
type PackageCache struct {
	Packages []CachedPackage `json:"packages"`
	Budget   int64           `json:"budget_bytes" doc:"Disk space of the cache."`
}

// PrunePackages is the body of POST /v1/package-cache/prune.
type PrunePackages struct {
	Keep int64 `json:"keep_bytes,omitempty" minimum:"0" doc:"How much of the most recently used data to keep; nothing if absent."`
}

// PrunedPackages is the answer of POST /v1/package-cache/prune.
type PrunedPackages struct {
	Removed    int   `json:"removed"`
	FreedBytes int64 `json:"freed_bytes"`
}

// VerifiedPackages is the answer of POST /v1/package-cache/verify.
type VerifiedPackages struct {
	Verified int      `json:"verified" doc:"Contents that have the digest of their name."`
	Bytes    int64    `json:"size_bytes"`
	Damaged  []string `json:"damaged" doc:"SHA-256 of contents that were damaged, and are removed."`
}
