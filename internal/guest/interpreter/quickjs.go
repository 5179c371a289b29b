package interpreter

import (
	"context"
	"os"
	"sync"

	"github.com/crannog/crannog/internal/fault"
)

// Program is a program that runs a worker.
type Program struct {
	Path string
	Argv []string
	// Files are its descriptors after those of every worker. The interpreter closes them.
	Files []*os.File
}

// quickjsLanguage is JavaScript on WebAssembly. Its worker shares the rewriting of cells with Node's.
var quickjsLanguage = &language{
	name: "javascript",
	hello: sync.OnceValue(func() []byte {
		return workerProgram("quickjs", "main.js", part{"rewrite", string(sourceOf("javascript/rewrite.js"))})
	}),
	encode:        encodeJSON,
	lateInterrupt: true,
}

// program returns the program that runs a language's workers.
func (s *Server) program(ctx context.Context, lang *language, env map[string]string) (Program, error) {
	if lang.program == "" {
		p, err := s.opts.QuickJS(ctx)
		if err != nil && fault.KindOf(err) == fault.Internal {
			err = fault.Wrap(err, fault.Unavailable, "worker_not_started", "The javascript worker could not be started: "+err.Error())
		}
		return p, err
	}
	path, err := lookProgram(lang, env)
	if err != nil || lang.prepare == nil {
		return Program{Path: path}, err
	}
	return lang.prepare(path)
}
