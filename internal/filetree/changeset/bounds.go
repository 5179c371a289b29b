package changeset

// Bounds of what is read from a sandbox. Zero in a field is the default, never
// unlimited.
type Bounds struct {
	// Files is the most that a tree may have.
	Files int
	// FileBytes is the most that one file may have to come out, and Bytes all
	// files together. Holes count, so that a small sandbox cannot fill a disk.
	FileBytes, Bytes int64
	// TextBytes is the largest file whose text is compared, and AllText the most
	// of all texts together.
	TextBytes, AllText int64
}

// DefaultBounds are used for every field that is zero.
var DefaultBounds = Bounds{Files: 500_000, FileBytes: 1 << 30, Bytes: 4 << 30, TextBytes: 1 << 20, AllText: 64 << 20}

// OrDefault fills zero fields with the defaults.
func (b Bounds) OrDefault() Bounds {
	d := DefaultBounds
	if b.Files == 0 {
		b.Files = d.Files
	}
	for _, f := range []struct{ have, def *int64 }{
		{&b.FileBytes, &d.FileBytes}, {&b.Bytes, &d.Bytes}, {&b.TextBytes, &d.TextBytes}, {&b.AllText, &d.AllText},
	} {
		if *f.have == 0 {
			*f.have = *f.def
		}
	}
	return b
}

// Bounds that hold for everybody.
const (
	maxPath  = 4096
	maxDepth = 200
	// maxNames bounds what all names of a tree take together.
	maxNames = 64 << 20
)
