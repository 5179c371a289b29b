package cli

import (
	"strings"

	"github.com/crannog/crannog/api"
)

// reportHostFiles prints which host files are needed to restore saved memory.
func (a stateVerbs) reportHostFiles(what string, h *api.HostFiles) {
	if h == nil || h.Count == 0 {
		return
	}
	files := "%d files"
	if h.Count == 1 {
		files = "%d file"
	}
	if h.Unkept == 0 {
		a.note("%s: the memory refers to "+files+" of the host (%s), of which copies are kept in case they change", what, h.Count, bytesText(h.Bytes))
		return
	}
	var names []string
	for _, f := range h.Files {
		if f.Kept {
			continue
		}
		if len(names) == 3 {
			names = append(names, "…")
			break
		}
		names = append(names, inert(f.Path))
	}
	a.note("%s: the memory refers to "+files+" of the host (%s). %d of them have no copy (%s): after one of these changes, only the sandbox's files can be resumed",
		what, h.Count, bytesText(h.Bytes), h.Unkept, strings.Join(names, ", "))
}
