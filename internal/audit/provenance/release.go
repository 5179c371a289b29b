package provenance

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/crannog/crannog/internal/fault"
)

// Release has the facts of a statement about files that were exported from a sandbox at one time.
type Release struct {
	// Artifact is the SHA-256 of the file to which they were written, in hexadecimal, or "" if the
	// files themselves were exported.
	Artifact string
	Files    []File

	Run        Run // of the sandbox, until the export
	External   External
	Internal   Internal
	TemplateID string
	Revision   string // digest of the host's programs that the template shows
	Commit     string // digest of the workspace at the start of the sandbox; "" if unknown
}

// File is one exported file, by its path below External.Dir.
type File struct{ Path, SHA256 string }

// Checkpoint is the signed tree head of the audit log that covers the export or the build.
type Checkpoint struct {
	Size int64
	Root string
	Note string
}

// server returns the ID of the server, which is in the name of its audit log: the note's first line.
func (c Checkpoint) server() string {
	name, _, _ := strings.Cut(c.Note, "\n")
	return strings.TrimPrefix(name, "crannog/")
}

const (
	recordName   = "record"
	templateName = "template"
	commitName   = "workspace"
	// maxFiles limits the size of a statement for its readers.
	maxFiles = 100_000
)

// artifactName returns the subject name of the whole written file. Paths inside begin with a slash,
// so no program can create a file that is mistaken for it.
func artifactName(out string) string { return "export." + out }

// Fits returns an error if a statement cannot cover that many files.
func Fits(files int) error {
	if files <= maxFiles {
		return nil
	}
	return fault.Newf(fault.Invalid, "provenance_too_large", "a statement can cover at most %d files, and these are %d", maxFiles, files).
		WithHint("name fewer paths, or leave the provenance out")
}

// Empty returns the fault for a release without files.
func Empty() error {
	return fault.New(fault.Invalid, "provenance_empty", "no file comes out, so there is nothing to state")
}

// Statement returns the statement about a release.
func (r Release) Statement() (Statement, error) {
	if err := Fits(len(r.Files)); err != nil {
		return Statement{}, err
	}
	var subjects []Resource
	if r.Artifact != "" {
		subjects = append(subjects, Resource{Name: artifactName(r.External.Out), Digest: &Digest{SHA256: r.Artifact}})
	}
	for _, f := range r.Files {
		subjects = append(subjects, Resource{Name: subjectName(r.External.Dir, f.Path), Digest: &Digest{SHA256: f.SHA256}})
	}
	if len(subjects) == 0 {
		return Statement{}, Empty()
	}
	return Statement{
		Type: statementType, Subject: subjects, PredicateType: predicateType,
		Predicate: Predicate{
			BuildDefinition: BuildDefinition{
				BuildType: BuildType, ExternalParameters: r.External, InternalParameters: r.Internal, ResolvedDependencies: r.dependencies(),
			},
			RunDetails: r.Run.details(),
		},
	}, nil
}

// dependencies returns the template and the workspace from which the sandbox started.
func (r Release) dependencies() []Resource {
	var out []Resource
	if r.TemplateID != "" {
		t := Resource{Name: templateName, URI: "urn:crannog:template:" + r.TemplateID}
		if r.Revision != "" {
			t.Annotations = map[string]string{"revision": r.Revision}
		}
		out = append(out, t)
	}
	if r.Commit != "" {
		out = append(out, Resource{Name: commitName, Digest: &Digest{GitCommit: r.Commit}})
	}
	return out
}

// Run describes when and where a sandbox or a build ran.
type Run struct {
	ID                 string
	StartedAt, EndedAt time.Time // a zero StartedAt is unknown
	Record             Checkpoint
	Version            string // of the server
}

// details returns the run in the form of a statement.
func (r Run) details() RunDetails {
	started, ended := r.StartedAt.UTC(), r.EndedAt.UTC()
	meta := Metadata{InvocationID: r.ID, FinishedOn: &ended}
	if !r.StartedAt.IsZero() {
		meta.StartedOn = &started
	}
	return RunDetails{
		Builder: Builder{ID: "urn:crannog:server:" + r.Record.server(), Version: map[string]string{"crannog": r.Version}}, Metadata: meta,
		Byproducts: []Resource{{
			Name: recordName, MediaType: "text/plain", Content: []byte(r.Record.Note),
			Annotations: map[string]string{"size": strconv.FormatInt(r.Record.Size, 10), "root": r.Record.Root},
		}},
	}
}

// Checkpoint returns the tree head in the statement.
func (r RunDetails) Checkpoint() (Checkpoint, bool) {
	for _, b := range r.Byproducts {
		if b.Name != recordName {
			continue
		}
		size, err := strconv.ParseInt(b.Annotations["size"], 10, 64)
		return Checkpoint{Size: size, Root: b.Annotations["root"], Note: string(b.Content)}, err == nil
	}
	return Checkpoint{}, false
}

// subjectName returns the subject name of a file in the directory dir.
func subjectName(dir, name string) string { return escaped(path.Join(dir, name)) }

// escaped returns a path as valid UTF-8 for JSON. It escapes invalid bytes and the escape character
// itself, so that two files never have the same name.
func escaped(full string) string {
	if utf8.ValidString(full) && !strings.Contains(full, "%") {
		return full
	}
	var b strings.Builder
	for i := 0; i < len(full); {
		r, n := utf8.DecodeRuneInString(full[i:])
		if r == utf8.RuneError && n == 1 || r == '%' {
			fmt.Fprintf(&b, "%%%02X", full[i])
		} else {
			b.WriteString(full[i : i+n])
		}
		i += n
	}
	return b.String()
}
