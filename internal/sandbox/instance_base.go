package sandbox

import (
	"slices"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/filetree/hosttools"
)

// Base describes the files and programs of a sandbox's instance. It is stored, because saved memory
// refers to them: every later instance of the sandbox and of its copies must have the same.
type Base struct {
	// Image is stored as "root", the name that it had in earlier versions.
	Image engine.Image `json:"root"`
	// Hide, Absent and ReadOnly are the path masks; NoRoot means that no user inside is root.
	Hide     []string `json:"hide,omitempty"`
	Absent   []string `json:"absent,omitempty"`
	ReadOnly []string `json:"read_only,omitempty"`
	NoRoot   bool     `json:"no_root,omitempty"`
	// Containers means that root inside has what container engines need.
	Containers bool `json:"containers,omitempty"`
	// Unseen says in sentences what the record of programs and files lacks.
	Unseen []string `json:"unseen,omitempty"`
	// Repos are the git repositories of the workspace that track hidden files.
	Repos []Repo `json:"repos,omitempty"`
	// Keys are files of the workspace that looked like keys when it was created.
	Keys Keys `json:"keys,omitzero"`
	// Tools are the directories of version managers that are mounted.
	Tools []hosttools.Tree `json:"tools,omitempty"`
	// Copy is the ID of the sandbox for which the workspace was copied, or "" if the caller's own
	// directory is mounted.
	Copy string `json:"copy,omitempty"`
	// Mounts and Links are the other mounts of host files, and Git is the repository among them to
	// which the workspace belongs. Notes explain to people which files are not mounted.
	Mounts []Mount       `json:"mounts,omitempty"`
	Links  []engine.Link `json:"links,omitempty"`
	Git    *Shared       `json:"git,omitempty"`
	Notes  []string      `json:"notes,omitempty"`
	// Volumes are attached to each instance, and are no part of its saved state.
	Volumes []VolumeMount `json:"volumes,omitempty"`
	// TakesWorkspace is set if the sandbox was created to save the memory of a template, which may
	// continue with a workspace, and for sandboxes that continue from that memory.
	TakesWorkspace bool `json:"takes_workspace,omitempty"`
	// Properties of the template.
	Env         map[string]string `json:"env,omitempty"`
	DefaultUser string            `json:"default_user,omitempty"`
	DefaultDir  string            `json:"default_dir,omitempty"`
	Revision    string            `json:"revision,omitempty"`
	ImageDigest string            `json:"image_digest,omitempty"`
	// Start is the program that the template starts in each instance that boots.
	Start *Start `json:"start,omitempty"`
	// Needs is what the memory of a snapshot refers to. It is empty for a sandbox.
	Needs *Needs `json:"needs,omitempty"`
	// Knows is the version of the checks that its guest implements, up to GuestKnows.
	Knows int `json:"knows,omitempty"`
	// Saves lists the parts of its state that its engine can save.
	Saves []string `json:"saves,omitempty"`
	// Attachment is how the instance is connected to the egress gateway. It is empty for a sandbox
	// without a network, and for one of an earlier version.
	Attachment engine.EgressKind `json:"attachment,omitempty"`
	// Locked is the digest of the set of the workspace's lockfiles, which were read before the
	// first instance of the sandbox, or of the one from which it was copied, ran. It is empty for a
	// policy without packages.lockfile_only.
	Locked string `json:"locked,omitempty"`
}

// SavedBy returns the parts of a sandbox's state that an engine can save in a snapshot, a pause and
// a copy.
func SavedBy(info engine.Info) []string {
	switch {
	case slices.Contains(info.Capabilities, engine.CanCheckpoint):
		return []string{"memory", "processes", "files"}
	case slices.Contains(info.Capabilities, engine.CanArchive):
		return []string{"files"}
	}
	return nil
}

// GuestKnows is the version of the checks that the guest of this version implements. Since version
// 1 it tries ports, places for new files, and limits of files and processes. A guest that was
// restored from memory is requested to make only the checks of its own version, and the server
// claims no more than these.
const GuestKnows = 1

// sameRoot reports whether two instances start from the same files.
func (b Base) sameRoot(o Base) bool {
	return b.Image.Equal(o.Image) && b.Copy == o.Copy && b.sameMounts(o)
}

// Saved is the image of a paused sandbox, or the image that is being written.
type Saved struct {
	Image     string `json:"image,omitempty"` // "" is none
	Sum       string `json:"sum,omitempty"`
	FilesOnly bool   `json:"files_only,omitempty"`
	Format    string `json:"format,omitempty"`
	// Needs are the host files to which its memory refers. Nil means unknown.
	Needs *Needs `json:"needs,omitempty"`
}

// HostBinds returns the files of the host that the engine has to mount.
func (b Base) HostBinds() []engine.Bind {
	var out []engine.Bind
	for _, m := range b.Mounts {
		out = append(out, engine.Bind{Source: m.Source, Target: m.Target})
	}
	return out
}

// sameMounts reports whether two instances mount the same host files and volumes.
func (b Base) sameMounts(o Base) bool {
	return slices.Equal(b.Mounts, o.Mounts) && slices.Equal(b.Links, o.Links) && slices.Equal(b.Volumes, o.Volumes)
}

// WithMountsOf returns b with the other instance's mounts except the workspace, and with its
// lockfiles.
func (b Base) WithMountsOf(from Base) Base {
	b.Copy, b.Mounts, b.Links, b.Git, b.Notes = from.Copy, from.Mounts, from.Links, from.Git, from.Notes
	b.Volumes = from.Volumes
	b.Locked, b.TakesWorkspace = from.Locked, from.TakesWorkspace
	return b
}

// toolsShown returns the directories of version managers in the form that callers see.
func (b Base) toolsShown() (shown []Tool) {
	for _, t := range b.Tools {
		shown = append(shown, Tool{Manager: t.Manager, Dir: t.Dir, Bin: t.Bin})
	}
	return shown
}

// Tool is a directory of a version manager that is mounted in a sandbox.
type Tool struct {
	Manager string
	Dir     string   // on the host and inside
	Bin     []string // directories of programs
}

// CheckRebuildable returns an error if a sandbox's row has too little information to create its
// instance again.
func (b Base) CheckRebuildable() error {
	if b.Image.Kind() != "" {
		return nil
	}
	return fault.New(fault.Conflict, "sandbox_too_old", "the sandbox was created by an earlier version, which did not store enough about it to save its state").
		WithHint("create a new sandbox; this one continues until its end")
}

// WithMasksOf returns b with the path masks of a saved instance, if both hide and protect the same
// paths. Memory saved by an earlier version uses other masks that are as strict. There an empty
// file is mounted over each hidden file, while today the file's name is free. Protected files are
// read-only there, while today programs change their own copy and the export rules decide. The
// reverse is refused, because a program may have used the free name.
func (b Base) WithMasksOf(saved Base, protected func(path string) bool) Base {
	masked := b
	masked.Hide, masked.Absent, masked.ReadOnly = slices.Clone(b.Hide), nil, slices.Clone(b.ReadOnly)
	for _, path := range b.Absent {
		if slices.Contains(saved.Hide, path) {
			masked.Hide = append(masked.Hide, path)
		} else {
			masked.Absent = append(masked.Absent, path)
		}
	}
	for _, path := range saved.ReadOnly {
		if !slices.Contains(masked.ReadOnly, path) && protected(path) {
			masked.ReadOnly = append(masked.ReadOnly, path)
		}
	}
	if masked.Difference(saved) == "" { // use the order in which the saved masks were mounted
		masked.Hide, masked.Absent, masked.ReadOnly = saved.Hide, saved.Absent, saved.ReadOnly
	}
	return masked
}

// Difference describes how an instance differs from a saved one. It returns "" if they are equal.
func (b Base) Difference(saved Base) string {
	for _, list := range []struct {
		what       string
		asked, has []string
	}{{"hides", b.Hide, saved.Hide}, {"leaves out", b.Absent, saved.Absent}, {"makes read-only", b.ReadOnly, saved.ReadOnly}} {
		for _, path := range list.asked {
			if !slices.Contains(list.has, path) {
				return "it also " + list.what + " " + path
			}
		}
		for _, path := range list.has {
			if !slices.Contains(list.asked, path) {
				return "it no longer " + list.what + " " + path
			}
		}
	}
	if b.NoRoot != saved.NoRoot {
		return "they differ in whether a user inside is root"
	}
	if b.Containers != saved.Containers {
		return "they differ in whether container engines can run inside"
	}
	if (b.Copy != "") != (saved.Copy != "") {
		return "they differ in whether the workspace is a copy"
	}
	return ""
}
