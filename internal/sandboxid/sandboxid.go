// Package sandboxid owns the form of a sandbox's ID. IDs are parts of paths
// and of names in many places: nothing but their own alphabet may pass, or
// "../" would lead out of a directory.
package sandboxid

import "github.com/crannog/crannog/internal/fault"

// longest is the greatest number of letters.
const longest = 40

// Valid says whether id has the form: 1 to 40 of a-z and 0-9.
func Valid(id string) bool {
	if len(id) == 0 || len(id) > longest {
		return false
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// Check returns an error if Valid does not hold for id.
func Check(id string) error {
	if Valid(id) {
		return nil
	}
	return fault.Newf(fault.Invalid, "invalid_id", "sandbox ID %q is not 1 to 40 of [a-z0-9]", id)
}
