// Package changeset owns what a box has changed and how it comes out: comparing
// two file trees, the text of the difference, and bringing chosen changes into
// a directory of the host's without trusting a byte of what the box says.
package changeset

import "time"

// Type of a file.
type Type string

const (
	Regular Type = "file"
	Dir     Type = "dir"
	Link    Type = "link"
	Other   Type = "other" // a device, a socket or a pipe: never comes out
)

// Entry is one file of a tree. A box wrote it: nothing of it is to be trusted
// but as a claim about the box itself.
type Entry struct {
	Path   string    `json:"path"` // relative, with slashes, clean
	Type   Type      `json:"type"`
	Mode   uint32    `json:"mode"` // permission bits with setuid, setgid and sticky as in Unix
	Size   int64     `json:"size"`
	MTime  time.Time `json:"mtime"`
	CTime  time.Time `json:"ctime"`
	Sum    string    `json:"sum,omitempty"`    // SHA-256, hexadecimal, where it was asked for
	Target string    `json:"target,omitempty"` // of a link
	// Ino tells two files of the host's apart. A box's says nothing.
	Ino uint64 `json:"-"`
	// Opaque says that what it holds is not to be seen: something else is
	// mounted on it, or it may not be read. It is neither changed nor removed.
	Opaque bool `json:"opaque,omitempty"`
}

// Op is what became of a path.
type Op string

const (
	Created Op = "created"
	Changed Op = "changed"
	Removed Op = "removed"
)

// Flag says why somebody should look at a change before it comes out.
type Flag string

const (
	Protected    Flag = "protected"      // the policy protects its path
	RunsByItself Flag = "runs_by_itself" // tools of the host would execute it unasked
	LinkOut      Flag = "link_out"       // a link that leads out of the directory
	Setuid       Flag = "setuid"         // setuid or setgid bits
	Special      Flag = "special"        // a device, a socket or a pipe
	TooLarge     Flag = "too_large"      // beyond a bound of what comes out
	SecretName   Flag = "secret_name"    // its name, or where it points, must not be seen
	// HiddenChanged: commits that it names delete or change a file that the policy
	// hides; GitUnchecked: it is not known whether they do.
	HiddenChanged Flag = "hidden_changed"
	GitUnchecked  Flag = "git_unchecked"
	Masked        Flag = "masked" // it has something that must not be seen, and comes out without
)

// Conflict is the reason why a change conflicts with the host's file.
type Conflict string

const (
	ChangedOutside Conflict = "changed_outside"
	RemovedOutside Conflict = "removed_outside"
	CreatedOutside Conflict = "created_outside"
	// SecretOutside: both sides have something that must not be seen, and the one
	// outside would be lost.
	SecretOutside Conflict = "secret_outside"
)

// Change is one path that is not as it was.
type Change struct {
	Path string
	Op   Op
	// Old and New are the file before and now; one is nil where there is none.
	Old, New *Entry
	// Outside is the file in the host's directory when it was looked at; nil
	// where there is none, or no such directory. It is what Apply expects.
	Outside *Entry
	// SameContent says that Old and New have the same bytes, and differ in
	// their modes.
	SameContent bool
	Flags       []Flag
	// Because is a file for which it has a flag, in a repository that it names.
	Because  string
	Conflict Conflict
	// Added and Removed count lines; Text is the unified diff, if it was asked
	// for. Binary content has neither.
	Binary         bool
	Added, Removed int
	Text           string
	// Omitted says that the text is left out because there is too much of it,
	// and that the lines are counted without regard to their order.
	Omitted bool
}
