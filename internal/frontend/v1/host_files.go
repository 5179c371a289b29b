package v1

import (
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/sandbox"
)

// toHostFiles counts the files to which a saved memory refers.
func toHostFiles(needs *sandbox.Needs) *api.HostFiles {
	if needs == nil {
		return nil
	}
	out := &api.HostFiles{}
	for _, f := range needs.Files {
		if f.Dir {
			continue
		}
		out.Count++
		out.Bytes += f.Size
		if !f.Kept {
			out.Unkept++
		}
	}
	return out
}

// addFiles adds the files themselves, by their paths inside, for local callers: only the machine's
// user may see paths of the host.
func addFiles(out *api.HostFiles, needs *sandbox.Needs) {
	if out == nil || needs == nil {
		return
	}
	for _, f := range needs.Files {
		if !f.Dir {
			out.Files = append(out.Files, api.HostFile{Path: f.Inside, Bytes: f.Size, Kept: f.Kept})
		}
	}
}
