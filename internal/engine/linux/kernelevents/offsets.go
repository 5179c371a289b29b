package kernelevents

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// offsets are the places of the fields that the programs read, in this kernel's structures.
type offsets struct {
	groupLeader, realParent, threadPID, cred, mm, signal, exitCode int16 // task_struct
	level, numbers                                                 int16 // pid
	upidSize, nr, upidNamespace                                    int16 // upid
	inum                                                           int16 // pid_namespace, in its ns_common
	uid                                                            int16 // cred
	live                                                           int16 // signal_struct
	argStart, argEnd, envStart, envEnd                             int16 // mm_struct
	filename                                                       int16 // linux_binprm
}

// wanted lists the fields by structure.
func (o *offsets) wanted() map[string]map[string]*int16 {
	return map[string]map[string]*int16{
		"task_struct": {
			"group_leader": &o.groupLeader, "real_parent": &o.realParent, "thread_pid": &o.threadPID, "cred": &o.cred,
			"mm": &o.mm, "signal": &o.signal, "exit_code": &o.exitCode,
		},
		"pid":           {"level": &o.level, "numbers": &o.numbers},
		"upid":          {"nr": &o.nr, "ns": &o.upidNamespace, "": &o.upidSize},
		"pid_namespace": {"ns.inum": &o.inum},
		"cred":          {"uid": &o.uid},
		"signal_struct": {"live": &o.live},
		"mm_struct":     {"arg_start": &o.argStart, "arg_end": &o.argEnd, "env_start": &o.envStart, "env_end": &o.envEnd},
		"linux_binprm":  {"filename": &o.filename},
	}
}

// Kinds of types in the kernel's description of its types (BTF).
const (
	kindInt, kindArray, kindStruct, kindUnion, kindEnum = 1, 3, 4, 5, 6
	kindFuncProto, kindVar, kindDatasec                 = 13, 14, 15
	kindDeclTag, kindEnum64                             = 17, 19
)

var errNoTypes = errors.New("the kernel's description of its types is malformed")

// readOffsets finds the fields in the kernel's description of its types. It reads the description
// once from start to end and keeps nothing of it: a parser that builds all types takes 20 times as
// long and needs much memory.
func readOffsets(data []byte) (o offsets, err error) {
	if len(data) < 24 || binary.LittleEndian.Uint16(data) != 0xeb9f {
		return o, errNoTypes
	}
	word := func(at int) int { return int(binary.LittleEndian.Uint32(data[at:])) }
	header := word(4)
	types, typesEnd := header+word(8), header+word(8)+word(12)
	texts, textsEnd := header+word(16), header+word(16)+word(20)
	if types < 0 || typesEnd > len(data) || typesEnd < types || texts < 0 || textsEnd > len(data) || textsEnd < texts {
		return o, errNoTypes
	}
	name := func(off int) string {
		if off < 0 || off >= textsEnd-texts {
			return ""
		}
		rest := data[texts+off : textsEnd]
		end := 0
		for end < len(rest) && rest[end] != 0 {
			end++
		}
		return string(rest[:end])
	}
	wanted := o.wanted()
	found := map[string]bool{}
	members := map[int][3]int{} // anonymous structures: position of the members, their number, whether the offsets are packed
	type pending struct {
		fields map[string]*int16
		prefix string
		base   int
		id     int
	}
	var later []pending
	commonMembers := -1 // the type ns_common
	id := 0
	for at := types; at+12 <= typesEnd; {
		id++
		info, size := word(at+4), word(at+8)
		count, kind, packed := info&0xffff, info>>24&0x1f, info>>31&1
		body, length := at+12, 0
		switch kind {
		case kindInt, kindVar, kindDeclTag:
			length = 4
		case kindArray:
			length = 12
		case kindStruct, kindUnion, kindDatasec, kindEnum64:
			length = 12 * count
		case kindEnum, kindFuncProto:
			length = 8 * count
		}
		if body+length > typesEnd {
			return o, errNoTypes
		}
		if kind == kindStruct || kind == kindUnion {
			own := name(word(at))
			if own == "" || own == "ns_common" {
				members[id] = [3]int{body, count, packed}
			}
			if own == "ns_common" {
				commonMembers = id
			}
			if fields := wanted[own]; fields != nil && kind == kindStruct && !found[own] {
				found[own] = true
				members[id] = [3]int{body, count, packed}
				if p := fields[""]; p != nil {
					*p = int16(size)
				}
				later = append(later, pending{fields: fields, id: id})
			}
		}
		at = body + length
	}
	done := map[*int16]bool{}
	for i := 0; i < len(later); i++ {
		p := later[i]
		m, ok := members[p.id]
		if !ok || i > 10_000 {
			continue
		}
		for j := range m[1] {
			at := m[0] + 12*j
			field, typeID, bits := name(word(at)), word(at+4), word(at+8)
			if m[2] == 1 {
				bits &= 0xffffff
			}
			offset := p.base + bits/8
			if field == "" {
				later = append(later, pending{fields: p.fields, prefix: p.prefix, base: offset, id: typeID})
				continue
			}
			if field == "ns" && typeID == commonMembers && p.fields["ns.inum"] != nil {
				later = append(later, pending{fields: p.fields, prefix: "ns.", base: offset, id: typeID})
				continue
			}
			if target := p.fields[p.prefix+field]; target != nil && !done[target] && offset < 1<<15 {
				*target, done[target] = int16(offset), true
			}
		}
	}
	var missing []string
	for structure, fields := range wanted {
		for field, target := range fields {
			if !done[target] && (field != "" || !found[structure]) {
				missing = append(missing, structure+"."+field)
			}
		}
	}
	if len(missing) > 0 {
		return o, fmt.Errorf("this kernel does not describe %s", strings.Join(missing, ", "))
	}
	return o, nil
}
