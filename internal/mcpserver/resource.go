package mcpserver

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/fault"
)

const (
	// maxPage bounds one read of a log or of a text file. _meta names the next page.
	maxPage = 256 << 10
	// metaNext is the field with the resource that continues a page.
	metaNext = "crannog/next"
)

// resources adds the files and logs of sandboxes.
func (w *view) resources() {
	w.srv.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "log", Title: "Output of a command", URITemplate: "sandbox://{id}/logs/{n}{?offset}", MIMEType: "text/plain",
		Description: "The kept output of a command, 256 KiB at a time",
	}, w.readResource)
	w.srv.AddResourceTemplate(&mcp.ResourceTemplate{
		Name: "file", Title: "File of a sandbox", URITemplate: "sandbox://{id}/{+path}",
		Description: "A file in a sandbox, by its path from the root on",
	}, w.readResource)
}

// address is the content of a URI: a log or a file.
type address struct {
	sandbox string
	log     int
	offset  int64
	path    string
}

// parseURI parses a resource's URI, which the client may have invented.
func parseURI(text string) (address, error) {
	wrong := fault.Newf(fault.Invalid, "invalid_uri", "%q is not sandbox://ID/logs/N or sandbox://ID/PATH", oneLine(text))
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "sandbox" || u.Host == "" || u.User != nil || u.Fragment != "" || u.Port() != "" || len(text) > 8192 {
		return address{}, wrong
	}
	a := address{sandbox: u.Host}
	if rest, ok := strings.CutPrefix(u.Path, "/logs/"); ok {
		n, err := strconv.ParseUint(rest, 10, 31)
		if err != nil || n == 0 {
			return address{}, wrong
		}
		a.log = int(n)
		if offset := u.Query().Get("offset"); offset != "" {
			if a.offset, err = strconv.ParseInt(offset, 10, 64); err != nil || a.offset < 0 {
				return address{}, wrong
			}
		}
		return a, nil
	}
	if u.RawQuery != "" || len(u.Path) < 2 || strings.ContainsRune(u.Path, 0) {
		return address{}, wrong
	}
	a.path = cleanName(u.Path)
	return a, nil
}

func (w *view) readResource(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	defer w.tenant.enter()()
	a, err := parseURI(req.Params.URI)
	if err != nil {
		return nil, plain(err)
	}
	b, err := w.resolve(ctx, req.Session, a.sandbox)
	if err == nil {
		var contents *mcp.ResourceContents
		if a.log > 0 {
			contents, err = b.readLog(a)
		} else {
			contents, err = b.readAny(ctx, a.path)
		}
		if err == nil {
			contents.URI = req.Params.URI
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{contents}}, nil
		}
	}
	if errors.Is(err, crannog.ErrNotFound) || fault.KindOf(err) == fault.NotFound {
		return nil, mcp.ResourceNotFoundError(req.Params.URI)
	}
	w.report(ctx, "resources/read", err)
	return nil, plain(err)
}

// plain returns an error for the client.
func plain(err error) error {
	_, code, text, _ := explain(err)
	return errors.New(inert(text) + " (" + code + ")")
}

func (b *agentSandbox) readLog(a address) (*mcp.ResourceContents, error) {
	j, err := b.job(a.log)
	if err != nil {
		return nil, err
	}
	data, next, skipped := j.combined.read(a.offset, maxPage)
	text := inert(string(data))
	if skipped > 0 {
		text = omittedNote(skipped) + text
	}
	total, _ := j.combined.size()
	c := &mcp.ResourceContents{MIMEType: "text/plain", Text: text, Meta: mcp.Meta{"crannog/total_bytes": total}}
	if next < total {
		c.Meta[metaNext] = logURI(b.sb.ID(), a.log) + "?offset=" + strconv.FormatInt(next, 10)
	}
	return c, nil
}

// readAny reads a file as text, or as bytes if it is not text.
func (b *agentSandbox) readAny(ctx context.Context, name string) (*mcp.ResourceContents, error) {
	f, err := b.sb.FS().WithContext(ctx).Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(bufio.NewReader(f), maxImage+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxImage:
		return nil, fault.Newf(fault.Exhausted, "file_too_large", "%s is larger than %d bytes", absPath(name), maxImage).
			WithHint("read_file reads a part of it")
	}
	mime := http.DetectContentType(data)
	if utf8.Valid(data) && !strings.ContainsRune(string(data), 0) {
		return &mcp.ResourceContents{MIMEType: "text/plain", Text: inertInPlace(string(data))}, nil
	}
	return &mcp.ResourceContents{MIMEType: mime, Blob: data}, nil
}
