package advisory

import "time"

// StaleAfter is the age from which on people are warned about a database. The publishers change
// something about each ecosystem within days.
const StaleAfter = 14 * 24 * time.Hour

// AsOf returns the time up to which the database can know advisories: when the newest was modified.
// The time of the import is not enough, because it says nothing about what was imported. Zero means
// that the database does not say.
func (i Info) AsOf() time.Time {
	if i.Modified.After(i.Imported) {
		return i.Imported // a publisher's clock, or a lie, must not make it fresh for years
	}
	return i.Modified
}

// Stale reports whether the database is older than age.
func (i Info) Stale(age time.Duration, now time.Time) bool {
	at := i.AsOf()
	return at.IsZero() || now.Sub(at) > age
}
