package numbers

import (
	"fmt"
	"reflect"
	"sync"

	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// gVisor has no function to set these numbers, so this package writes them into gVisor's fields, at
// offsets that it takes from gVisor's types. With a version that has other fields, files get
// gVisor's numbers, and TestScripts/run_numbers fails.

// fileSystems is the prefix of the import paths of gVisor's file systems.
const fileSystems = "gvisor.dev/gvisor/pkg/sentry/fsimpl/"

// overlayFields holds the offsets of fields in a file of an overlay.
type overlayFields struct {
	copied, upper, lower, minor, ino uintptr
	err                              error
}

// upperFields holds the offsets of fields in a file of the upper layer, to which an overlay writes.
type upperFields struct {
	inode   uintptr
	ino, fs uintptr // in the inode
	minor   uintptr // in the file system
	last    uintptr
	err     error
}

// finder finds fields by name and type, and records the first error.
type finder struct{ err error }

// field returns the field with a name, whose type must satisfy want.
func (f *finder) field(of reflect.Type, name string, want func(reflect.Type) bool) reflect.StructField {
	if f.err != nil || of.Kind() != reflect.Struct {
		return reflect.StructField{Type: of}
	}
	field, ok := of.FieldByName(name)
	if !ok || len(field.Index) != 1 || !want(field.Type) {
		f.err = fmt.Errorf("%s has no field %s of a known type", of, name)
	}
	return field
}

// isType reports whether a type is T.
func isType[T any](t reflect.Type) bool { return t == reflect.TypeFor[T]() }

// isPointer reports whether a type is a pointer.
func isPointer(t reflect.Type) bool { return t.Kind() == reflect.Pointer }

// isDentryOf reports whether a type is the type of files of a file system of gVisor.
func isDentryOf(t reflect.Type, system string) bool {
	return isPointer(t) && t.Elem().PkgPath() == fileSystems+system && t.Elem().Name() == "dentry"
}

var (
	overlays sync.Map // reflect.Type → *overlayFields
	uppers   sync.Map // reflect.Type → *upperFields
)

// overlayOf returns the fields of a file of an overlay, or nil for other files.
func overlayOf(impl vfs.DentryImpl) *overlayFields {
	t := reflect.TypeOf(impl)
	if known, ok := overlays.Load(t); ok {
		return known.(*overlayFields)
	}
	var l *overlayFields
	if isDentryOf(t, "overlay") {
		l = findOverlay(t)
	}
	overlays.Store(t, l)
	return l
}

// findOverlay finds the fields of an overlay's type of files.
func findOverlay(t reflect.Type) *overlayFields {
	var f finder
	of := t.Elem()
	l := &overlayFields{
		copied: f.field(of, "copiedUp", isType[atomicbitops.Uint32]).Offset,
		upper:  f.field(of, "upperVD", isType[vfs.VirtualDentry]).Offset,
		lower:  f.field(of, "lowerVDs", isType[[]vfs.VirtualDentry]).Offset,
		minor:  f.field(of, "devMinor", isType[atomicbitops.Uint32]).Offset,
		ino:    f.field(of, "ino", isType[atomicbitops.Uint64]).Offset,
	}
	l.err = f.err
	return l
}

// upperOf returns the fields of a file of the upper layer, or nil for other files.
func upperOf(impl vfs.DentryImpl) *upperFields {
	t := reflect.TypeOf(impl)
	if known, ok := uppers.Load(t); ok {
		return known.(*upperFields)
	}
	var l *upperFields
	if isDentryOf(t, "tmpfs") {
		l = findUpper(t)
	}
	uppers.Store(t, l)
	return l
}

// findUpper finds the fields of the upper layer's type of files.
func findUpper(t reflect.Type) *upperFields {
	var f finder
	inode := f.field(t.Elem(), "inode", isPointer)
	if f.err != nil {
		return &upperFields{err: f.err}
	}
	fs := f.field(inode.Type.Elem(), "fs", isPointer)
	if f.err != nil {
		return &upperFields{err: f.err}
	}
	l := &upperFields{
		inode: inode.Offset, fs: fs.Offset,
		ino:   f.field(inode.Type.Elem(), "ino", isType[uint64]).Offset,
		minor: f.field(fs.Type.Elem(), "devMinor", isType[uint32]).Offset,
		last:  f.field(fs.Type.Elem(), "nextInoMinusOne", isType[atomicbitops.Uint64]).Offset,
	}
	l.err = f.err
	return l
}
