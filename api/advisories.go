package api

import "time"

// AdvisoryDatabase is what is known about vulnerabilities and malware of one ecosystem.
type AdvisoryDatabase struct {
	Ecosystem  string     `json:"ecosystem" doc:"As in packages.cache of a policy."`
	Releases   []string   `json:"releases,omitempty" doc:"Releases of distributions that it knows, such as Debian:12."`
	Advisories int        `json:"advisories"`
	Packages   int        `json:"packages" doc:"Packages that the advisories are about."`
	ImportedAt *time.Time `json:"imported_at,omitempty" doc:"Absent if it is damaged."`
	ModifiedAt *time.Time `json:"modified_at,omitempty" doc:"When the newest advisory was last modified by its publisher."`
	Stale      bool       `json:"stale,omitempty" doc:"It is more than 14 days old, so newer advisories are unknown."`
	Damaged    bool       `json:"damaged,omitempty" doc:"It cannot be read. Packages of the ecosystem are refused until it is imported again."`
}

// AdvisoryList is the answer of GET /v1/package-cache/advisories.
type AdvisoryList struct {
	Databases []AdvisoryDatabase `json:"databases"`
}

// ImportedAdvisories is the answer of PUT /v1/package-cache/advisories.
type ImportedAdvisories struct {
	Advisories int                `json:"advisories" doc:"Advisories that were read."`
	Withdrawn  int                `json:"withdrawn" doc:"How many of these their publisher has withdrawn; they do not count."`
	Skipped    int                `json:"skipped" doc:"How many of these are only about other ecosystems."`
	Databases  []AdvisoryDatabase `json:"databases" doc:"The databases that the file was about, as they are now."`
}
