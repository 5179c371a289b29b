package engine

import (
	"encoding/json"
	"slices"

	"github.com/crannog/crannog/internal/fault"
)

// ImageKind is the kind of the files from which a sandbox starts.
type ImageKind string

// Kinds of images.
const (
	ImageHostView ImageKind = "host-view"
	ImageLayers   ImageKind = "layers"
	ImageOCI      ImageKind = "oci"
	ImageDisk     ImageKind = "disk"
	ImageModule   ImageKind = "module"
)

// Image holds the files from which a sandbox starts. Exactly one of its kinds is set. Images are
// read-only: what a sandbox writes goes to its own overlay.
type Image struct {
	HostView *HostView
	Layers   *Layers
	OCI      *OCI
	Disk     *Disk
	// Guest is the path of the guest's program in the sandbox.
	Guest string
}

// HostView is a directory of the server in which files and directories of the host are shown.
type HostView struct {
	// Dir is a directory that the server has made, with mount points, links and /etc.
	Dir string
	// Binds are shown read-only below Dir, in order.
	Binds []Bind
	// Owners is a file of the host with the owners and set-id bits of the files below Dir, in the
	// format of internal/filetree/fileowners. If it is "", the files have the owners that they have
	// on the host, and no set-id bits.
	Owners string
	// Packed, if set, has the same files as one file system. An engine that can mount it needs Dir
	// and Binds only for sandboxes that show more than it contains.
	Packed *Packed
	// Runner, if set, makes this an image of the kind ImageModule: its programs are WebAssembly
	// modules, which the kernel does not execute.
	Runner *Runner
}

// Packed is an EROFS file with the files of a view: those of its Dir, with the owners that Owners
// names, and Binds.
type Packed struct {
	File   string // absolute, on the host
	Owners string // the view's Owners when the file was made
	Binds  []Bind // the view's Binds when the file was made
}

// equal reports whether both name the same file with the same content.
func (p *Packed) equal(other *Packed) bool {
	if p == nil || other == nil {
		return p == other
	}
	return p.File == other.File && p.Owners == other.Owners && slices.Equal(p.Binds, other.Binds)
}

// Whole returns the packed form of the view if that has all its files.
func (v HostView) Whole() *Packed {
	if v.Packed == nil || v.Packed.Owners != v.Owners || !slices.Equal(v.Packed.Binds, v.Binds) {
		return nil
	}
	return v.Packed
}

// Runner is the program that runs the modules of an image.
type Runner struct {
	Path string // absolute path in the sandbox
	// JavaScript is the path in the sandbox of the module that runs JavaScript.
	JavaScript string `json:",omitempty"`
	// Deterministic gives modules a fixed clock and fixed random numbers.
	Deterministic bool `json:",omitempty"`
}

// equal reports whether both run modules in the same way.
func (r *Runner) equal(other *Runner) bool {
	if r == nil || other == nil {
		return r == other
	}
	return *r == *other
}

// Layers is a tree made of EROFS files.
type Layers struct {
	Digest string // of the whole image, "sha256:..."
	// Files are paths on the host. The first is the lowest layer.
	Files []string
}

// OCI is an image in the engine's own store.
type OCI struct {
	Ref    string // name for users
	Digest string // identifies the image; the engine starts only an image with this digest
}

// Disk is a file system in a file on the host.
type Disk struct {
	Path   string
	Format string // "raw", "qcow2", "erofs", "ext4"
}

// Bind shows a host file or directory in the sandbox.
type Bind struct {
	Source string // absolute, on the host
	Target string // absolute path in the sandbox; it exists in HostView.Dir
	// Owned is set if all files belong to the sandbox's user, as in a workspace. Otherwise the
	// files have the host's owners.
	Owned bool `json:",omitempty"`
}

// Volume shows a host directory in the sandbox, with the host's owners. The engine enforces no
// limit on it.
type Volume struct {
	Source   string // absolute, on the host
	Target   string // absolute path in the sandbox
	ReadOnly bool   `json:",omitempty"`
}

// ViewOf returns an image of the kind HostView.
func ViewOf(dir, guest string, binds ...Bind) Image {
	return Image{HostView: &HostView{Dir: dir, Binds: binds}, Guest: guest}
}

// kinds returns the kinds that are set.
func (i Image) kinds() (list []ImageKind) {
	for _, k := range []struct {
		kind ImageKind
		set  bool
	}{
		{ImageHostView, i.HostView != nil && i.HostView.Runner == nil}, {ImageLayers, i.Layers != nil}, {ImageOCI, i.OCI != nil},
		{ImageDisk, i.Disk != nil}, {ImageModule, i.HostView != nil && i.HostView.Runner != nil},
	} {
		if k.set {
			list = append(list, k.kind)
		}
	}
	return list
}

// Kind returns the image's kind, or "" if it has none or several.
func (i Image) Kind() ImageKind {
	if list := i.kinds(); len(list) == 1 {
		return list[0]
	}
	return ""
}

// Check refuses an image from which an engine with these kinds cannot start a sandbox.
func (i Image) Check(kinds []ImageKind) error {
	kind := i.Kind()
	if kind == "" {
		return fault.Newf(fault.Invalid, "image_invalid", "an image must have exactly one kind, and this one has %d", len(i.kinds()))
	}
	if !slices.Contains(kinds, kind) {
		return fault.Newf(fault.Unsupported, CodeImage, "the engine cannot start a sandbox from an image of the kind %q", kind)
	}
	return nil
}

// View returns the image's view of the host, or an empty view for other kinds of images.
func (i Image) View() HostView {
	if i.HostView == nil {
		return HostView{}
	}
	return *i.HostView
}

// Show returns a copy of the image with additional binds. Other images that share the list of binds
// do not change.
func (i Image) Show(binds ...Bind) (Image, error) {
	if len(binds) == 0 {
		return i, nil
	}
	if i.HostView == nil {
		return i, fault.Newf(fault.Unsupported, "image_hides_host", "an image of the kind %q shows no files of the host", i.Kind()).
			WithHint("mount the files, or use a template that shows the host")
	}
	view := i.View()
	view.Binds = slices.Concat(view.Binds, binds)
	i.HostView = &view
	return i, nil
}

// WithGuestOf returns a copy of a host view with the guest program of another image. Images of
// other kinds are returned unchanged.
func (i Image) WithGuestOf(other Image) Image {
	if i.HostView == nil {
		return i
	}
	view := i.View()
	view.Binds = slices.Clone(view.Binds)
	for n := range view.Binds {
		for _, bind := range other.View().Binds {
			if bind.Target == other.Guest && view.Binds[n].Target == i.Guest {
				view.Binds[n].Source = bind.Source
			}
		}
	}
	i.HostView = &view
	return i
}

// Equal reports whether sandboxes start from the same files with both images.
func (i Image) Equal(o Image) bool {
	if i.Guest != o.Guest || !slices.Equal(i.kinds(), o.kinds()) {
		return false
	}
	same := true
	if i.HostView != nil {
		same = i.HostView.Dir == o.HostView.Dir && i.HostView.Owners == o.HostView.Owners && slices.Equal(i.HostView.Binds, o.HostView.Binds) &&
			i.HostView.Packed.equal(o.HostView.Packed) && i.HostView.Runner.equal(o.HostView.Runner)
	}
	if i.Layers != nil {
		same = same && i.Layers.Digest == o.Layers.Digest && slices.Equal(i.Layers.Files, o.Layers.Files)
	}
	if i.OCI != nil {
		same = same && *i.OCI == *o.OCI
	}
	if i.Disk != nil {
		same = same && *i.Disk == *o.Disk
	}
	return same
}

// storedImage is the stored form of an image. The fields of the host view are at the top level,
// because earlier versions had no other kind.
type storedImage struct {
	Dir    string `json:",omitempty"`
	Binds  []Bind `json:",omitempty"`
	Guest  string
	Owners string  `json:",omitempty"`
	Layers *Layers `json:",omitempty"`
	OCI    *OCI    `json:",omitempty"`
	Disk   *Disk   `json:",omitempty"`
	Runner *Runner `json:",omitempty"`
	Packed *Packed `json:",omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (i Image) MarshalJSON() ([]byte, error) {
	view := i.View()
	return json.Marshal(storedImage{
		Dir: view.Dir, Binds: view.Binds, Guest: i.Guest, Owners: view.Owners, Layers: i.Layers, OCI: i.OCI, Disk: i.Disk,
		Packed: view.Packed, Runner: view.Runner,
	})
}

// UnmarshalJSON implements json.Unmarshaler.
func (i *Image) UnmarshalJSON(data []byte) error {
	var s storedImage
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	*i = Image{Layers: s.Layers, OCI: s.OCI, Disk: s.Disk, Guest: s.Guest}
	if s.Dir != "" || len(s.Binds) > 0 {
		i.HostView = &HostView{Dir: s.Dir, Binds: s.Binds, Owners: s.Owners, Packed: s.Packed, Runner: s.Runner}
	}
	return nil
}
