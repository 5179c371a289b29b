package trim

import (
	"cmp"
	"fmt"
	"os"
	"reflect"
	"slices"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/mm"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
)

// gVisor does not export the fields that this file reads. If a version of gVisor has other names or
// types, an error reports that, and no memory is released.

// private returns an unexported field of a struct of another package.
func private[T any](of any, name string) (*T, error) {
	field, err := fieldOf(of, name)
	if err != nil {
		return nil, err
	}
	found, ok := field.Interface().(*T)
	if !ok {
		return nil, fmt.Errorf("%s of gVisor's %T is a %v, not a %v", name, of, field.Type(), reflect.TypeFor[*T]())
	}
	return found, nil
}

// fieldOf returns a pointer to an unexported field of any type.
func fieldOf(of any, name string) (reflect.Value, error) {
	field := reflect.ValueOf(of).Elem().FieldByName(name)
	if !field.IsValid() {
		return field, fmt.Errorf("gVisor's %T has no %s", of, name)
	}
	return reflect.NewAt(field.Type(), field.Addr().UnsafePointer()), nil
}

// memoryFile returns the file that holds the memory of all programs.
func memoryFile(mf *pgalloc.MemoryFile) (*os.File, error) {
	file, err := private[*os.File](mf, "file")
	if err != nil {
		return nil, err
	}
	return *file, nil
}

// span is a range of a program's addresses.
type span = hostarch.AddrRange

// area is a range for which gVisor has reserved memory, with its offset in the file.
type area struct {
	span
	offset uint64
}

// untouched returns the addresses for which memory is reserved and the file has no page. Programs
// must be paused.
func untouched(m *mm.MemoryManager, mf *pgalloc.MemoryFile, fd int) ([]span, error) {
	areas, err := reserved(m, mf)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(areas, func(a, b area) int { return cmp.Compare(a.offset, b.offset) })
	var spans []span
	file := scanner{fd: fd}
	for _, a := range areas {
		all, err := file.holes(a.offset, a.offset+uint64(a.Length()))
		if err != nil {
			return nil, err
		}
		for _, h := range all {
			spans = append(spans, span{Start: a.Start + hostarch.Addr(h.start-a.offset), End: a.Start + hostarch.Addr(h.end-a.offset)})
		}
	}
	return spans, nil
}

// rlocker is the type of the locks of the tables of a program's memory.
type rlocker interface {
	RLock()
	RUnlock()
}

// reserved returns the areas that read as zeros after they are released.
func reserved(m *mm.MemoryManager, mf *pgalloc.MemoryFile) (areas []area, err error) {
	defer func() {
		if r := recover(); r != nil {
			areas, err = nil, fmt.Errorf("gVisor's tables of memory have an unexpected form: %v", r)
		}
	}()
	var tables [2]reflect.Value
	for i, names := range [][2]string{{"mappingMu", "vmas"}, {"activeMu", "pmas"}} { // in the order of gVisor's locks
		lock, err := fieldOf(m, names[0])
		if err != nil {
			return nil, err
		}
		if tables[i], err = fieldOf(m, names[1]); err != nil {
			return nil, err
		}
		mu := lock.Interface().(rlocker)
		mu.RLock()
		defer mu.RUnlock()
	}
	var anonymous []span
	each(tables[0], func(at span, vma reflect.Value) {
		// Only anonymous memory reads as zeros after its release. Memory that maps a file would
		// show the file's content again. Locked memory must stay, because a program has requested
		// that.
		if vma.FieldByName("mappable").IsNil() && vma.FieldByName("mlockMode").IsZero() {
			anonymous = append(anonymous, at)
		}
	})
	file := reflect.ValueOf(mf).Pointer()
	each(tables[1], func(at span, pma reflect.Value) {
		// The rest of a huge page stays reserved, so releasing a part gains nothing.
		if pma.FieldByName("private").Bool() && !pma.FieldByName("huge").Bool() && pma.FieldByName("file").Elem().Pointer() == file {
			areas = append(areas, area{at, pma.FieldByName("off").Uint()})
		}
	})
	return within(areas, anonymous), nil
}

// each calls f with the entries of one of gVisor's tables. The names of the methods are constants,
// so that the linker keeps the methods. They are looked up once, because that takes longer than a
// call, and the programs wait.
func each(table reflect.Value, f func(span, reflect.Value)) {
	segment := table.MethodByName("FirstSegment").Call(nil)[0]
	method := func(m reflect.Method, found bool) func(reflect.Value) reflect.Value {
		if !found {
			panic(fmt.Sprintf("%v has other methods", segment.Type()))
		}
		return func(of reflect.Value) reflect.Value { return m.Func.Call([]reflect.Value{of})[0] }
	}
	exists := method(segment.Type().MethodByName("Ok"))
	addresses := method(segment.Type().MethodByName("Range"))
	value := method(segment.Type().MethodByName("ValuePtr"))
	next := method(segment.Type().MethodByName("NextSegment"))
	for ; exists(segment).Bool(); segment = next(segment) {
		f(addresses(segment).Interface().(span), value(segment).Elem())
	}
}

// within returns the parts of areas that lie in spans. Both are sorted by address.
func within(areas []area, spans []span) []area {
	var parts []area
	for _, a := range areas {
		for len(spans) > 0 && spans[0].End <= a.Start {
			spans = spans[1:]
		}
		for _, s := range spans {
			if s.Start >= a.End {
				break
			}
			part := a.span.Intersect(s)
			parts = append(parts, area{part, a.offset + uint64(part.Start-a.Start)})
		}
	}
	return parts
}
