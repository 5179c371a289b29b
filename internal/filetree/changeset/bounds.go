package changeset

// Bounds limit what is read from a sandbox. A zero field stands for the default, never for
// unlimited.
type Bounds struct {
	// Files is the maximum number of files in a tree.
	Files int
	// FileBytes is the maximum size of one exported file, and Bytes that of all files together.
	// Holes count, so that a small sandbox cannot fill a disk.
	FileBytes, Bytes int64
	// TextBytes is the maximum size of a file whose text is compared, and AllText that of all texts
	// together.
	TextBytes, AllText int64
}

// DefaultBounds are the defaults of zero fields.
var DefaultBounds = Bounds{Files: 500_000, FileBytes: 1 << 30, Bytes: 4 << 30, TextBytes: 1 << 20, AllText: 64 << 20}

// OrDefault returns the bounds with zero fields replaced by the defaults.
func (b Bounds) OrDefault() Bounds {
	d := DefaultBounds
	if b.Files == 0 {
		b.Files = d.Files
	}
	for _, f := range []struct{ value, def *int64 }{
		{&b.FileBytes, &d.FileBytes}, {&b.Bytes, &d.Bytes}, {&b.TextBytes, &d.TextBytes}, {&b.AllText, &d.AllText},
	} {
		if *f.value == 0 {
			*f.value = *f.def
		}
	}
	return b
}

// Limits that callers cannot change.
const (
	maxPath  = 4096
	maxDepth = 200
	// maxNames bounds the total length of all names of a tree.
	maxNames = 64 << 20
)
