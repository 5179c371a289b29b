package filters

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"
)

// Each process of a sandbox reads the generated file at its start. The format is binary, because
// decoding JSON took 3 ms. The file is a sequence of 32-bit numbers and strings; lists and strings
// begin with their length.

// errShort is returned for a file that ends too early.
var errShort = errors.New("the file of seccomp programs is truncated")

// Encode returns the content of the generated file.
func Encode(boot, gofer []precompiledseccomp.Program) []byte {
	var out []byte
	number := func(n int) { out = binary.LittleEndian.AppendUint32(out, uint32(n)) }
	text := func(s string) {
		number(len(s))
		out = append(out, s...)
	}
	for _, list := range [][]precompiledseccomp.Program{boot, gofer} {
		number(len(list))
		for _, p := range list {
			text(p.Name)
			number(len(p.VarOffsets))
			for _, name := range slices.Sorted(maps.Keys(p.VarOffsets)) {
				text(name)
				number(len(p.VarOffsets[name]))
				for _, offset := range p.VarOffsets[name] {
					number(offset)
				}
			}
			number(len(p.Bytecode32))
			for _, word := range p.Bytecode32 {
				number(int(word))
			}
		}
	}
	return out
}

// Decode reads what Encode wrote.
func Decode(data []byte) (boot, gofer []precompiledseccomp.Program, err error) {
	r := reader{unread: data}
	boot, gofer = r.programs(), r.programs()
	if r.short {
		return nil, nil, errShort
	}
	return boot, gofer, nil
}

// reader reads numbers and strings. It sets short if the data ends too early.
type reader struct {
	unread []byte
	short  bool
}

// bytes reads n bytes.
func (r *reader) bytes(n int) []byte {
	if r.short || n > len(r.unread) {
		r.short = true
		return nil
	}
	data := r.unread[:n]
	r.unread = r.unread[n:]
	return data
}

// number reads a number.
func (r *reader) number() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// count reads the length of a list. No list is longer than the data.
func (r *reader) count() int {
	n := int(r.number())
	if n > len(r.unread) {
		r.short = true
		return 0
	}
	return n
}

// text reads a string.
func (r *reader) text() string { return string(r.bytes(r.count())) }

// programs reads a list of programs.
func (r *reader) programs() []precompiledseccomp.Program {
	list := make([]precompiledseccomp.Program, r.count())
	for i := range list {
		p := &list[i]
		p.Name, p.VarOffsets = r.text(), map[string][]int{}
		for range r.count() {
			name := r.text()
			offsets := make([]int, r.count())
			for j := range offsets {
				offsets[j] = int(r.number())
			}
			p.VarOffsets[name] = offsets
		}
		p.Bytecode32 = make([]uint32, r.count())
		for j := range p.Bytecode32 {
			p.Bytecode32[j] = r.number()
		}
	}
	return list
}
