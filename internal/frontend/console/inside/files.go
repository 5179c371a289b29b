package inside

import (
	"cmp"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest/gen/filesystempb"
	"github.com/crannog/crannog/internal/guest/guestboot"
)

const (
	// maxEntries bounds the list of a directory.
	maxEntries = 5000
	maxPath    = 4096
	maxSmall   = 64 << 10 // a body that names paths
)

// Entry is one file as a page shows it.
type Entry struct {
	Name string `json:"name"`
	Path string `json:"path"`
	// Type is file, dir, symlink or other.
	Type     string    `json:"type"`
	Size     int64     `json:"size"`
	Mode     uint32    `json:"mode"` // permission bits
	Modified time.Time `json:"modified_at"`
	Target   string    `json:"target,omitempty"` // of a symlink
}

// checkPath returns an error for an invalid path.
func checkPath(p string) (string, error) {
	if !strings.HasPrefix(p, "/") || len(p) > maxPath || strings.ContainsRune(p, 0) || strings.ToValidUTF8(p, "") != p {
		return "", fault.New(fault.Invalid, "invalid_path", "a path must begin with a slash, be valid text, and have at most 4096 bytes")
	}
	return p, nil
}

func (x *Inside) listFiles(w http.ResponseWriter, r *http.Request, v visit) error {
	dir := r.URL.Query().Get("path")
	if dir != "" { // none means the home directory
		if _, err := checkPath(dir); err != nil {
			return err
		}
	}
	ctx, guest := x.connectWithin(r, v, answerTimeout)
	defer guest.close()
	at, err := guest.files().Stat(ctx, call(guest, &filesystempb.StatRequest{Path: dir}))
	if err != nil {
		return guestError(err)
	}
	// The page builds paths of entries from this path and sends them back to the sandbox. A
	// shortened path would name another file.
	here, err := checkPath(at.Msg.GetEntry().GetPath())
	if err != nil {
		return guestFailed(err)
	}
	list, err := guest.lists().ListDir(ctx, call(guest, &filesystempb.ListDirRequest{Path: dir, Depth: 1}))
	if err != nil {
		return guestError(err)
	}
	out := struct {
		Path    string  `json:"path"`
		Entries []Entry `json:"entries"`
		Cut     bool    `json:"cut,omitempty"` // there are more entries
	}{Path: here, Entries: []Entry{}}
	found := list.Msg.GetEntries()
	if len(found) > maxEntries {
		found, out.Cut = found[:maxEntries], true
	}
	for _, e := range found {
		// A name with a slash would be another path.
		if n := e.GetName(); n == "" || n == "." || n == ".." || len(n) > maxPath || strings.Contains(n, "/") {
			continue
		}
		out.Entries = append(out.Entries, entryOf(e, out.Path))
	}
	return writeJSON(w, http.StatusOK, out)
}

// entryOf converts a file of the sandbox. It builds the path from the directory's path, because the
// path that the sandbox sent cannot be trusted.
func entryOf(e *filesystempb.EntryInfo, dir string) Entry {
	out := Entry{
		Name: e.GetName(), Path: path.Join(dir, e.GetName()), Type: "other", Size: e.GetSize(), Mode: e.GetMode() & 0o7777,
		Modified: e.GetModifiedTime().AsTime().UTC(), Target: clipMessage(e.GetSymlinkTarget()),
	}
	if y := out.Modified.Year(); y < 0 || y > 9999 {
		out.Modified = time.Time{} // such a time cannot be encoded in JSON
	}
	switch e.GetType() {
	case filesystempb.FileType_FILE_TYPE_FILE:
		out.Type = "file"
	case filesystempb.FileType_FILE_TYPE_DIRECTORY:
		out.Type = "dir"
	case filesystempb.FileType_FILE_TYPE_SYMLINK:
		out.Type = "symlink"
	case filesystempb.FileType_FILE_TYPE_UNSPECIFIED:
	}
	if out.Target != "" {
		out.Type = "symlink"
	}
	return out
}

// download sends a file as a download. A browser must never show it as a page of the console,
// whatever its content or name.
func (x *Inside) download(w http.ResponseWriter, r *http.Request, v visit) error {
	guest := x.connect(v, answerTimeout)
	defer guest.close()
	name, res, err := guest.file(r, http.MethodGet, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return guestHTTPError(res, "file")
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", attachment(path.Base(name)))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	if res.ContentLength >= 0 {
		h.Set("Content-Length", strconv.FormatInt(res.ContentLength, 10))
	}
	if _, err := io.Copy(w, res.Body); err != nil {
		// The header has been sent, so only closing the connection shows that the content is
		// incomplete.
		panic(http.ErrAbortHandler)
	}
	return nil
}

// attachment returns the header with the file's name. Characters that could mislead a file manager
// are replaced.
func attachment(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '"' || r == '\\' || r == '/' {
			return '_'
		}
		return r
	}, name)
	return cmp.Or(mime.FormatMediaType("attachment", map[string]string{"filename": cmp.Or(name, "file")}), "attachment")
}

// file requests the content of the named file.
func (r guestConn) file(from *http.Request, method string, body io.Reader) (string, *http.Response, error) {
	name, err := checkPath(from.URL.Query().Get("path"))
	if err != nil {
		return "", nil, err
	}
	req, err := http.NewRequestWithContext(from.Context(), method, baseURL+"/files?"+url.Values{"path": {name}}.Encode(), body)
	if err != nil {
		return "", nil, err
	}
	req.Header = r.header(guestboot.Port)
	req.Header.Set("Accept-Encoding", "identity")
	if body != nil {
		req.Header.Set("Content-Type", "application/octet-stream")
		req.ContentLength = from.ContentLength
	}
	res, err := r.client.Do(req)
	if err != nil {
		return "", nil, guestFailed(err)
	}
	return name, res, nil
}

// upload writes a file. The sandbox's own limits apply.
func (x *Inside) upload(w http.ResponseWriter, r *http.Request, v visit) error {
	guest := x.connect(v, answerTimeout)
	defer guest.close()
	body := io.Reader(r.Body)
	if r.ContentLength == 0 {
		body = http.NoBody
	}
	_, res, err := guest.file(r, http.MethodPost, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return guestHTTPError(res, "file")
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (x *Inside) removeFile(w http.ResponseWriter, r *http.Request, v visit) error {
	name, err := checkPath(r.URL.Query().Get("path"))
	if err != nil {
		return err
	}
	ctx, guest := x.connectWithin(r, v, workTimeout)
	defer guest.close()
	_, err = guest.files().Remove(ctx, call(guest, &filesystempb.RemoveRequest{Path: name}))
	if err != nil {
		return guestError(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (x *Inside) makeDir(w http.ResponseWriter, r *http.Request, v visit) error {
	var in struct {
		Path string `json:"path"`
	}
	if err := readJSON(w, r, maxSmall, &in); err != nil {
		return err
	}
	if _, err := checkPath(in.Path); err != nil {
		return err
	}
	ctx, guest := x.connectWithin(r, v, workTimeout)
	defer guest.close()
	_, err := guest.files().MakeDir(ctx, call(guest, &filesystempb.MakeDirRequest{Path: in.Path}))
	if err != nil {
		return guestError(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (x *Inside) moveFile(w http.ResponseWriter, r *http.Request, v visit) error {
	var in struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	if err := readJSON(w, r, maxSmall, &in); err != nil {
		return err
	}
	_, fromErr := checkPath(in.From)
	_, toErr := checkPath(in.To)
	if err := errors.Join(fromErr, toErr); err != nil {
		return err
	}
	ctx, guest := x.connectWithin(r, v, workTimeout)
	defer guest.close()
	_, err := guest.files().Move(ctx, call(guest, &filesystempb.MoveRequest{Source: in.From, Destination: in.To}))
	if err != nil {
		return guestError(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
