package interpreter

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/crannog/crannog/internal/fault"
)

// language describes how to run code of one language: the worker's program, its source, and the
// encoding of requests.
type language struct {
	name    string
	program string   // looked up in the PATH of the sandbox; "" means Options.QuickJS
	args    []string // after the program's name
	// prepare returns what to run for the program that was found. It is nil if that is the program
	// itself.
	prepare func(path string) (Program, error)
	// stdin is set if requests are sent to standard input instead of file descriptor 3.
	stdin bool
	// hello returns the data that the worker reads before its first request.
	hello func() []byte
	// encode encodes a request for the worker.
	encode func(request) []byte
	// confirm encodes a request to report the end of an execution again. It is nil if no interrupt
	// can discard the report.
	confirm func(n int) []byte
	// lateInterrupt is set if an interrupt at the end of an execution can hit the next execution or
	// end the worker.
	lateInterrupt bool
	// slow is set if the worker compiles itself when it starts.
	slow bool
	// exits is set if code of this language may end its worker on purpose. The end is then an exit
	// status, not an error.
	exits bool
}

// languages lists the supported languages, by canonical name.
var languages = map[string]*language{
	"python":     pythonLanguage,
	"javascript": javascriptLanguage,
	"typescript": typescriptLanguage,
	"bash":       bashLanguage,
	"r":          rLanguage,
	"java":       javaLanguage,
}

// aliases are other names that clients use.
var aliases = map[string]string{
	"": "python", "python3": "python", "py": "python",
	"js": "javascript", "node": "javascript", "ts": "typescript", "sh": "bash", "shell": "bash",
}

// moduleLanguages lists the languages of a sandbox whose programs are WebAssembly modules.
var moduleLanguages = map[string]*language{"javascript": quickjsLanguage}

// findLanguage returns a language by its name or alias.
func (s *Server) findLanguage(name string) (*language, error) {
	key := strings.ToLower(strings.TrimSpace(name))
	if canonical, ok := aliases[key]; ok {
		key = canonical
	}
	if l, ok := s.languages[key]; ok {
		return l, nil
	}
	if s.opts.QuickJS != nil {
		if key = truncate(key, 60); key == "python" && name == "" {
			key = "python (the default)"
		}
		return nil, fault.Newf(fault.Unsupported, "language_unsupported",
			"This sandbox runs WebAssembly modules, and its code interpreter knows javascript only, not %s. Name the language javascript, or use another engine.", key)
	}
	return nil, fault.Newf(fault.Unsupported, "language_unsupported",
		"Language %q is not supported. Use python, javascript, typescript, bash, r or java.", truncate(name, 60))
}

// request is a message to a worker.
type request struct {
	N        int               `json:"n"`
	Code     string            `json:"code"`
	Env      map[string]string `json:"env,omitempty"`
	Language string            `json:"language,omitempty"`

	// If one of these is set, the request has no code. A worker does not answer Renew and Drain. It
	// answers Preload (if nonzero) when everything is loaded.
	Renew   *renewal `json:"renew,omitempty"`
	Preload int      `json:"preload,omitempty"`
	// Drain makes the worker of a language with lateInterrupt discard a late interrupt.
	Drain bool `json:"drain,omitempty"`
}

// encodeJSON encodes a request as a line of JSON.
func encodeJSON(r request) []byte {
	line, err := json.Marshal(r)
	if err != nil {
		// Strings, maps of strings and integers always marshal.
		panic(fmt.Sprintf("encode request: %v", err))
	}
	return append(line, '\n')
}

// encodeSources encodes source files for a worker: the length of the main file, the main file, and
// a JSON line with the other files by name. Workers read their source from the pipe, so that
// nothing has to be installed in a sandbox. They load the other files only when needed, because
// compiling takes most of the start time.
func encodeSources(main string, parts map[string]string) []byte {
	line, err := json.Marshal(parts)
	if err != nil {
		panic(fmt.Sprintf("encode program: %v", err))
	}
	out := fmt.Appendf(nil, "%d\n%s", len(main), main)
	return append(append(out, line...), '\n')
}

// truncate shortens s to n bytes.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}
