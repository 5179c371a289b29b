package pypi

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/html"

	"github.com/crannog/crannog/internal/packages"
)

// jsonType is the Content-Type of the index as JSON.
const jsonType = "application/vnd.pypi.simple.v1+json"

// maxFiles limits the files of a project.
const maxFiles = 100_000

// file is a file of a project.
type file struct {
	name, url, version string
	about              packages.Version
	metadata           packages.Digest // of the file with the metadata; zero if there is none
	requires           string          // versions of Python
	yanked             bool
	reason             string // why it was yanked
}

// readIndex reads the files of a project. Files of other projects are left out, because their
// digests could otherwise be used for this one.
func readIndex(name, base, contentType string, text []byte) ([]file, error) {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, errors.New("it has no type")
	}
	at, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	var all []file
	if kind == jsonType {
		all, err = readJSON(name, text)
	} else {
		all, err = readHTML(text)
	}
	if err != nil {
		return nil, err
	}
	var out []file
	for _, f := range all {
		of, version, ok := fileName(f.name)
		link, err := at.Parse(f.url)
		if !ok || of != name || err != nil || !strings.HasSuffix(link.Path, "/"+f.name) {
			continue
		}
		link.Fragment = ""
		f.url, f.version = link.String(), version
		out = append(out, f)
	}
	return out, nil
}

func readJSON(name string, text []byte) ([]file, error) {
	var d struct {
		Name  string `json:"name"`
		Files []struct {
			Name     string            `json:"filename"`
			URL      string            `json:"url"`
			Hashes   map[string]string `json:"hashes"`
			Requires string            `json:"requires-python"`
			Time     string            `json:"upload-time"`
			Core     json.RawMessage   `json:"core-metadata"`
			Yanked   any               `json:"yanked"`
		} `json:"files"`
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, err
	}
	if packages.PythonName(d.Name) != name {
		return nil, errors.New("it is about another project")
	}
	if len(d.Files) > maxFiles {
		return nil, errors.New("it has too many files")
	}
	var out []file
	for _, e := range d.Files {
		f := file{name: e.Name, url: e.URL, requires: e.Requires}
		f.about.Digest, _ = packages.HexDigest("sha256", e.Hashes["sha256"])
		if at, err := time.Parse(time.RFC3339, e.Time); err == nil {
			f.about.Published = at
		}
		switch y := e.Yanked.(type) {
		case bool:
			f.yanked = y
		case string:
			f.yanked, f.reason = true, y
		}
		var core map[string]string
		if json.Unmarshal(e.Core, &core) == nil {
			f.metadata, _ = packages.HexDigest("sha256", core["sha256"])
		}
		out = append(out, f)
	}
	return out, nil
}

func readHTML(text []byte) ([]file, error) {
	var out []file
	z := html.NewTokenizer(bytes.NewReader(text))
	for {
		switch z.Next() {
		case html.ErrorToken:
			if errors.Is(z.Err(), io.EOF) {
				return out, nil
			}
			return nil, z.Err()
		case html.StartTagToken:
			if tag, ok := z.TagName(); string(tag) != "a" || !ok {
				continue
			}
			if f, ok := anchor(z); ok {
				out = append(out, f)
			}
			if len(out) > maxFiles {
				return nil, errors.New("it has too many files")
			}
		default:
		}
	}
}

// anchor reads the attributes of a link to a file.
func anchor(z *html.Tokenizer) (f file, ok bool) {
	for more := true; more; {
		var key, value []byte
		key, value, more = z.TagAttr()
		switch v := string(value); string(key) {
		case "href":
			f.url = v
			link, err := url.Parse(v)
			if err != nil {
				return f, false
			}
			f.name = link.Path[strings.LastIndexByte(link.Path, '/')+1:]
			if sum, found := strings.CutPrefix(link.Fragment, "sha256="); found {
				f.about.Digest, _ = packages.HexDigest("sha256", sum)
			}
		case "data-requires-python":
			f.requires = v
		case "data-yanked":
			f.yanked, f.reason = true, v
		case "data-core-metadata", "data-dist-info-metadata":
			if sum, found := strings.CutPrefix(v, "sha256="); found {
				f.metadata, _ = packages.HexDigest("sha256", sum)
			}
		}
	}
	return f, f.url != ""
}

// write writes the link to a file.
func (f file) write(w *bytes.Buffer) {
	link := f.url
	if f.about.Digest.Algorithm == "sha256" {
		link += "#sha256=" + hex.EncodeToString([]byte(f.about.Digest.Sum))
	}
	fmt.Fprintf(w, `<a href="%s"`, html.EscapeString(link))
	if f.requires != "" {
		fmt.Fprintf(w, ` data-requires-python="%s"`, html.EscapeString(f.requires))
	}
	if f.metadata.Algorithm != "" {
		fmt.Fprintf(w, ` data-core-metadata="sha256=%s"`, hex.EncodeToString([]byte(f.metadata.Sum)))
	}
	if f.yanked {
		fmt.Fprintf(w, ` data-yanked="%s"`, html.EscapeString(f.reason))
	}
	fmt.Fprintf(w, ">%s</a>\n", html.EscapeString(f.name))
}
