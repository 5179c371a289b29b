package e2b

import (
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/state/volume"
)

// contentPath begins the paths of the volume content API. Its requests carry the token of a volume
// and no key.
const contentPath = "/volumecontent/"

// contentFailure is the body of an error of the volume content API. Its code is a string, unlike in
// the rest of the API.
type contentFailure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// content serves the files of a volume.
func (a *api) content(w http.ResponseWriter, r *http.Request) {
	if err := a.serveContent(w, r); err != nil {
		failed := a.failureOf(r, err)
		writeJSON(w, failed.Code, contentFailure{failed.ErrorCode, failed.Message})
	}
}

func (a *api) serveContent(w http.ResponseWriter, r *http.Request) error {
	id, what, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, contentPath), "/")
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	owner, err := a.Volumes.ByToken(id, token)
	if err != nil {
		return err
	}
	query, err := queryOf(r.URL.RawQuery)
	if err != nil {
		return err
	}
	c := contentCall{a.Volumes, w, r, owner, id, query, query.Get("path")}
	serve := map[string]func() error{
		"GET path": c.stat, "PATCH path": c.setAttributes, "DELETE path": c.remove,
		"GET dir": c.list, "POST dir": c.makeDir, "GET file": c.read, "PUT file": c.write,
	}[r.Method+" "+what]
	if serve == nil {
		return fault.New(fault.NotFound, "route_not_found", "no such endpoint")
	}
	return serve()
}

// contentCall is one request of the volume content API.
type contentCall struct {
	volumes Volumes
	w       http.ResponseWriter
	r       *http.Request
	owner   sandbox.Principal
	id      string
	query   url.Values
	path    string
}

// withFiles opens the files for reading and calls do.
func (c contentCall) withFiles(do func(*volume.Files) error) error {
	files, err := c.volumes.Files(c.owner, c.id)
	if err != nil {
		return err
	}
	defer files.Close()
	return do(files)
}

// change calls do with the files open for writing, and answers with the description of the file.
// The parameter what names the change in the audit log.
func (c contentCall) change(what string, status int, do func(*volume.Files) error) error {
	var e volume.Entry
	err := c.volumes.Change(c.r.Context(), c.owner, what, c.id, func(f *volume.Files) (err error) {
		if err = do(f); err == nil {
			e, err = f.Stat(c.path)
		}
		return err
	})
	if err != nil {
		return err
	}
	writeJSON(c.w, status, statOf(e))
	return nil
}

func (c contentCall) stat() error {
	return c.withFiles(func(f *volume.Files) error {
		e, err := f.Stat(c.path)
		if err != nil {
			return err
		}
		writeJSON(c.w, http.StatusOK, statOf(e))
		return nil
	})
}

// maxDepth bounds the depth of a listing.
const maxDepth = 64

func (c contentCall) list() error {
	depth := 1
	if text := c.query.Get("depth"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxDepth {
			return fault.Newf(fault.Invalid, "depth_invalid", "depth is 1 to %d", maxDepth)
		}
		depth = n
	}
	return c.withFiles(func(f *volume.Files) error {
		entries, err := f.List(c.path, depth)
		if err != nil {
			return err
		}
		out := make([]statBody, 0, len(entries))
		for _, e := range entries {
			out = append(out, statOf(e))
		}
		writeJSON(c.w, http.StatusOK, out)
		return nil
	})
}

func (c contentCall) makeDir() error {
	a, err := c.attributes()
	if err != nil {
		return err
	}
	return c.change("mkdir", http.StatusCreated, func(f *volume.Files) error { return f.MakeDir(c.path, a, c.query.Get("force") == "true") })
}

func (c contentCall) read() error {
	return c.withFiles(func(f *volume.Files) error {
		file, err := f.Read(c.path)
		if err != nil {
			return err
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return err
		}
		c.w.Header().Set("Content-Type", "application/octet-stream")
		c.w.Header().Set("X-Content-Type-Options", "nosniff")
		c.w.Header().Set("Content-Length", strconv.FormatInt(info.Size(), 10))
		c.w.WriteHeader(http.StatusOK)
		if _, err := io.CopyN(c.w, file, info.Size()); err != nil {
			panic(http.ErrAbortHandler) // the client must not take it for a complete file
		}
		return nil
	})
}

func (c contentCall) write() error {
	a, err := c.attributes()
	if err != nil {
		return err
	}
	body := &idleDeadlineBody{c.r.Body, http.NewResponseController(c.w)}
	return c.change("write", http.StatusCreated, func(f *volume.Files) error {
		force := c.query.Get("force")
		if force == "true" {
			if err := f.MakeDir(path.Dir("/"+c.path), volume.Attributes{}, true); err != nil {
				return err
			}
		}
		return f.Write(c.path, body, a, force != "false")
	})
}

func (c contentCall) setAttributes() error {
	var in struct {
		UID  *uint32 `json:"uid"`
		GID  *uint32 `json:"gid"`
		Mode *uint32 `json:"mode"`
	}
	if err := decode(c.w, c.r, &in, false); err != nil {
		return err
	}
	return c.change("attributes", http.StatusOK, func(f *volume.Files) error {
		return f.SetAttributes(c.path, volume.Attributes{UID: in.UID, GID: in.GID, Mode: in.Mode})
	})
}

func (c contentCall) remove() error {
	err := c.volumes.Change(c.r.Context(), c.owner, "delete", c.id, func(f *volume.Files) error { return f.Remove(c.path) })
	if err == nil {
		c.w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// attributes reads the attributes of a new file from the query.
func (c contentCall) attributes() (a volume.Attributes, err error) {
	for name, field := range map[string]**uint32{"uid": &a.UID, "gid": &a.GID, "mode": &a.Mode} {
		text := c.query.Get(name)
		if text == "" {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return a, fault.Newf(fault.Invalid, "attributes_invalid", "%s is not a number: %.40q", name, text)
		}
		value := uint32(n)
		*field = &value
	}
	return a, nil
}

// statBody describes a file of a volume.
type statBody struct {
	Name   string    `json:"name"`
	Type   string    `json:"type"`
	Path   string    `json:"path"`
	Size   int64     `json:"size"`
	Mode   uint32    `json:"mode"`
	UID    uint32    `json:"uid"`
	GID    uint32    `json:"gid"`
	ATime  time.Time `json:"atime"`
	MTime  time.Time `json:"mtime"`
	CTime  time.Time `json:"ctime"`
	Target string    `json:"target,omitempty"`
}

func statOf(e volume.Entry) statBody {
	return statBody{e.Name, string(e.Type), e.Path, e.Size, e.Mode, e.UID, e.GID, e.Accessed, e.Modified, e.Changed, e.Target}
}
