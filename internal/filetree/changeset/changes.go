// Package changeset owns change sets: comparing two file trees, the text of their
// difference, and applying selected changes to a directory of the host without trusting
// any data of the sandbox.
package changeset

import "time"

// Type of a file.
type Type string

const (
	Regular Type = "file"
	Dir     Type = "dir"
	Link    Type = "link"
	Other   Type = "other" // a device, a socket or a pipe: never exported
)

// Entry describes one file of a tree. The description of a sandbox's file comes from the
// sandbox and must not be trusted as a statement about the host.
type Entry struct {
	Path   string    `json:"path"` // relative, with slashes, clean
	Type   Type      `json:"type"`
	Mode   uint32    `json:"mode"` // permission bits with setuid, setgid and sticky as in Unix
	Size   int64     `json:"size"`
	MTime  time.Time `json:"mtime"`
	CTime  time.Time `json:"ctime"`
	Sum    string    `json:"sum,omitempty"`    // SHA-256, hexadecimal, if requested
	Target string    `json:"target,omitempty"` // target of a link
	// Ino distinguishes files of the host. It has no meaning for files of a sandbox.
	Ino uint64 `json:"-"`
	// Opaque is set if the content is not visible, because something is mounted on it or it may not
	// be read. Such an entry counts neither as changed nor as removed.
	Opaque bool `json:"opaque,omitempty"`
}

// Op is the kind of a change.
type Op string

const (
	Created Op = "created"
	Changed Op = "changed"
	Removed Op = "removed"
)

// Flag is a reason to review a change before it is applied or exported.
type Flag string

const (
	Protected    Flag = "protected"      // the policy protects its path
	RunsByItself Flag = "runs_by_itself" // tools of the host would execute it without being asked
	LinkOut      Flag = "link_out"       // a link that leads out of the directory
	Setuid       Flag = "setuid"         // setuid or setgid bits
	Special      Flag = "special"        // a device, a socket or a pipe
	TooLarge     Flag = "too_large"      // exceeds a limit of exports
	SecretName   Flag = "secret_name"    // its name or link target contains a secret
	// HiddenChanged is the flag of a git reference whose commits delete or change a file that the
	// policy hides. GitUnchecked is the flag of one whose commits were not checked.
	HiddenChanged Flag = "hidden_changed"
	GitUnchecked  Flag = "git_unchecked"
	Masked        Flag = "masked" // it contains a secret, which is redacted on export
)

// Conflict is the reason why a change conflicts with the host's file.
type Conflict string

const (
	ChangedOutside Conflict = "changed_outside"
	RemovedOutside Conflict = "removed_outside"
	CreatedOutside Conflict = "created_outside"
	// SecretOutside is the conflict of files that both contain a secret: redacting the
	// sandbox's file would destroy the secret of the host's file.
	SecretOutside Conflict = "secret_outside"
)

// Change is one changed path.
type Change struct {
	Path string
	Op   Op
	// Old and New describe the file before and after; one of them may be nil.
	Old, New *Entry
	// Outside describes the file in the host's directory at the comparison, or is nil.
	// Apply expects this file.
	Outside *Entry
	// SameContent is set if Old and New differ only in their modes.
	SameContent bool
	Flags       []Flag
	// Because is the file in a repository that caused a flag of a git reference.
	Because  string
	Conflict Conflict
	// Added and Removed count lines. Text is the unified diff, if requested. Binary
	// content has neither.
	Binary         bool
	Added, Removed int
	Text           string
	// Omitted is set if the text is too long to be included. The lines are then counted regardless
	// of their order.
	Omitted bool
}
