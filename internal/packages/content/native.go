package content

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"path"
	"strings"
)

// headSize is how much of an entry is read to recognise it.
const headSize = 4096

const windowsProgram = "a Windows program"

// nativeKind returns the kind of a native program or library, or "". head is the beginning of a
// file of size bytes.
func nativeKind(head []byte, size int64) string {
	switch {
	case bytes.HasPrefix(head, []byte("\x7fELF")) && len(head) >= 18:
		order := binary.ByteOrder(binary.LittleEndian)
		if head[5] == 2 {
			order = binary.BigEndian
		}
		// An object file cannot be run or loaded. Programs for BPF are object files.
		const relocatable = 1
		if order.Uint16(head[16:]) == relocatable {
			return ""
		}
		return "an ELF program"
	case bytes.HasPrefix(head, []byte("MZ")) && len(head) >= 64:
		at := int64(binary.LittleEndian.Uint32(head[60:]))
		if at+4 > size {
			return "" // a text that begins with these letters
		}
		// A header beyond what was read could be there.
		if at+4 > int64(len(head)) || bytes.HasPrefix(head[at:], []byte("PE\x00\x00")) {
			return windowsProgram
		}
	case len(head) >= 8:
		switch binary.BigEndian.Uint32(head) {
		case 0xfeedface, 0xfeedfacf, 0xcefaedfe, 0xcffaedfe:
			return "a Mach-O program"
		case 0xcafebabe, 0xcafebabf:
			// A Java class begins with the same number. Its version follows, which is at least 45.
			const maxArchitectures = 40
			if n := binary.BigEndian.Uint32(head[4:]); n > 0 && n < maxArchitectures {
				return "a Mach-O program"
			}
		}
	}
	return ""
}

// executable records a native program where none belongs.
func (i *inspection) executable(name string, head []byte, size int64) {
	if i.form.native {
		return
	}
	if kind := nativeKind(head, size); kind != "" && (!i.form.launchers || kind != windowsProgram) {
		i.add(Executable, name, "is "+kind)
	}
}

// maxManifest limits a package.json.
const maxManifest = 1 << 20

// isManifest reports whether an entry becomes the package.json of the package itself. Clients
// remove the first directory, whatever its name is.
func (i *inspection) isManifest(name string) bool {
	dir, file, ok := strings.Cut(path.Clean(name), "/")
	return i.form.manifest && ok && dir != "" && file == "package.json"
}

// manifest reads whether a package.json declares operating systems, as packages do that consist of
// native programs. The last package.json of an archive replaces the ones before it.
func (i *inspection) manifest(data []byte) {
	i.platform = false
	var m struct {
		OS any `json:"os"`
	}
	if json.Unmarshal(data, &m) != nil {
		return
	}
	list, _ := m.OS.([]any)
	for _, one := range append(list, m.OS) {
		// With an exclamation mark, the package is for all others.
		if s, ok := one.(string); ok && s != "" && s[0] != '!' {
			i.platform = true
		}
	}
}
