package numbers

import (
	"fmt"
	"reflect"
	"sync"

	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// gVisor has no function to set these numbers, so they are written into its fields. The offsets are
// taken from its own types. With a version that has other fields, files get gVisor's numbers, and
// TestScripts/run_numbers fails.

const fileSystems = "gvisor.dev/gvisor/pkg/sentry/fsimpl/"

// overlayFields are the offsets of fields in a file of an overlay.
type overlayFields struct {
	copied, upper, lower, minor, ino uintptr
	err                              error
}

// upperFields are the offsets of fields in a file of the layer that an overlay writes to.
type upperFields struct {
	inode   uintptr
	ino, fs uintptr // in the inode
	minor   uintptr // in the file system
	last    uintptr
	err     error
}

// finder finds fields by name and type.
type finder struct{ err error }

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

func is[T any](t reflect.Type) bool { return t == reflect.TypeFor[T]() }

func pointer(t reflect.Type) bool { return t.Kind() == reflect.Pointer }

// belongs reports whether a type is the one with this name in a file system of gVisor.
func belongs(t reflect.Type, system string) bool {
	return pointer(t) && t.Elem().PkgPath() == fileSystems+system && t.Elem().Name() == "dentry"
}

var (
	overlays sync.Map // reflect.Type → *overlayFields
	uppers   sync.Map // reflect.Type → *upperFields
)

func overlayOf(impl vfs.DentryImpl) *overlayFields {
	t := reflect.TypeOf(impl)
	if known, ok := overlays.Load(t); ok {
		return known.(*overlayFields)
	}
	var l *overlayFields
	if belongs(t, "overlay") {
		l = findOverlay(t)
	}
	overlays.Store(t, l)
	return l
}

func findOverlay(t reflect.Type) *overlayFields {
	var f finder
	of := t.Elem()
	l := &overlayFields{
		copied: f.field(of, "copiedUp", is[atomicbitops.Uint32]).Offset,
		upper:  f.field(of, "upperVD", is[vfs.VirtualDentry]).Offset,
		lower:  f.field(of, "lowerVDs", is[[]vfs.VirtualDentry]).Offset,
		minor:  f.field(of, "devMinor", is[atomicbitops.Uint32]).Offset,
		ino:    f.field(of, "ino", is[atomicbitops.Uint64]).Offset,
	}
	l.err = f.err
	return l
}

func upperOf(impl vfs.DentryImpl) *upperFields {
	t := reflect.TypeOf(impl)
	if known, ok := uppers.Load(t); ok {
		return known.(*upperFields)
	}
	var l *upperFields
	if belongs(t, "tmpfs") {
		l = findUpper(t)
	}
	uppers.Store(t, l)
	return l
}

func findUpper(t reflect.Type) *upperFields {
	var f finder
	inode := f.field(t.Elem(), "inode", pointer)
	if f.err != nil {
		return &upperFields{err: f.err}
	}
	fs := f.field(inode.Type.Elem(), "fs", pointer)
	if f.err != nil {
		return &upperFields{err: f.err}
	}
	l := &upperFields{
		inode: inode.Offset, fs: fs.Offset,
		ino:   f.field(inode.Type.Elem(), "ino", is[uint64]).Offset,
		minor: f.field(fs.Type.Elem(), "devMinor", is[uint32]).Offset,
		last:  f.field(fs.Type.Elem(), "nextInoMinusOne", is[atomicbitops.Uint64]).Offset,
	}
	l.err = f.err
	return l
}
