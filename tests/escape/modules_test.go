package escape_test

import "bytes"

// section returns a section of a module.
func section(id byte, content ...byte) []byte {
	return append(append([]byte{id}, size(len(content))...), content...)
}

// size returns a number in the encoding of WebAssembly.
func size(n int) []byte {
	var out []byte
	for {
		b := byte(n & 0x7f)
		if n >>= 7; n == 0 {
			return append(out, b)
		}
		out = append(out, b|0x80)
	}
}

// assemble returns a module with sections.
func assemble(sections ...[]byte) []byte {
	return append([]byte("\x00asm\x01\x00\x00\x00"), bytes.Join(sections, nil)...)
}

// function returns a module whose function _start has a body.
func function(body []byte, before ...[]byte) []byte {
	content := append([]byte{0}, body...) // no local variables
	content = append(content, 0x0b)       // end
	code := append(append([]byte{1}, size(len(content))...), content...)
	all := [][]byte{section(1, 1, 0x60, 0, 0)} // the type of a function without parameters and results
	all = append(all, section(3, 1, 0))
	all = append(all, before...)
	all = append(all, section(7, append(append([]byte{1, 6}, "_start"...), 0, 0)...), section(10, code...))
	return assemble(all...)
}

// validModule returns a module that does nothing. It is the control of the hostile ones.
func validModule() []byte { return function(nil) }

// hostile returns modules whose content attacks the compiler, the runtime or the server, by name.
func hostile() map[string][]byte {
	loop := []byte{0x03, 0x40, 0x0c, 0x00, 0x0b} // loop, branch to its begin, end
	start := assemble(section(1, 1, 0x60, 0, 0), section(3, 1, 0), section(7, append(append([]byte{1, 6}, "_start"...), 0, 0)...),
		section(8, 0), section(10, append([]byte{1}, append(size(len(loop)+2), append(append([]byte{0}, loop...), 0x0b)...)...)...))
	return map[string][]byte{
		"native-program":      []byte("\x7fELF\x02\x01\x01 and more than eight bytes"),
		"component":           []byte("\x00asm\x0d\x00\x01\x00"),
		"only-header":         assemble(),
		"cut-off":             validModule()[:20],
		"length-beyond-file":  assemble([]byte{1, 0xff, 0xff, 0xff, 0xff, 0x0f}),
		"function-beyond-end": assemble(section(1, 1, 0x60, 0, 0), section(3, 0xff, 0xff, 0xff, 0xff, 0x0f)),
		"unknown-type":        function([]byte{0x10, 0x7f}),
		"stack-underflow":     function([]byte{0x1a, 0x1a}),
		"branch-too-far":      function([]byte{0x0c, 0x40}),
		"whole-memory":        function([]byte{0x41, 0xff, 0xff, 0x03, 0x40, 0x00, 0x41, 0x7f, 0x46, 0x04, 0x40, 0x00, 0x0b}, section(5, 1, 0x00, 0x01)),
		"memory-of-4-gib":     function(nil, section(5, 1, 0x00, 0x80, 0x80, 0x04)),
		"address-beyond":      function([]byte{0x41, 0x7f, 0x28, 0x02, 0x00, 0x1a}, section(5, 1, 0x00, 0x01)),
		"table-of-4-gib":      function(nil, section(4, 1, 0x70, 0x00, 0xff, 0xff, 0xff, 0xff, 0x0f)),
		"host-function":       assemble(section(1, 1, 0x60, 0, 0), section(2, append(append([]byte{1, 3}, "env"...), append(append([]byte{9}, "host_call"...), 0, 0)...)...), section(7, append(append([]byte{1, 6}, "_start"...), 0, 0)...)),
		"endless-recursion":   function([]byte{0x10, 0x00}),
		"start-loop":          start,
	}
}
