package packages

import (
	"context"
	"errors"
	"io"
	"time"
)

// Kind is the meaning of a request.
type Kind int

// Kinds of requests.
const (
	// Unknown is a path that the protocol does not have.
	Unknown Kind = iota
	// Service is a path that serves no package, such as a search or an audit.
	Service
	// Document is what a registry says about the versions of a package.
	Document
	// OfFile is a file of one version.
	OfFile
)

// Target is what a request is for.
type Target struct {
	Kind Kind
	// Origin is the scheme and the host of the registry, and Path the escaped path of the request.
	Origin, Path string
	// Name is the package. Version is empty if only a document of the registry says it.
	Name, Version string
	// Shared is set for a document or file about many packages. The gate judges these packages when
	// their files are requested.
	Shared bool
}

// Keep reports whether the gate lets a sandbox see a version.
type Keep func(version string, v Version) bool

// Listing is a document for a client.
type Listing struct {
	Text []byte
	Type string // Content-Type
	// Remaining is the number of versions that are left.
	Remaining int
	// Digest is set if the protocol has a name for the document by its digest.
	Digest string
	// Tolerated is set if nothing vouches for the document, which the policy permits.
	Tolerated bool
}

// File is what a registry says about a file.
type File struct {
	URL     string
	Version string
	About   Version
	Type    string // Content-Type, if it is not that of the registry
	// Metadata is set if the file has no code, and clients read it also for versions that they do
	// not install, such as the go.mod of a module.
	Metadata bool
	// Text is set if the answer is a document, which has already been read.
	Text []byte
	// Integrity identifies Check. Check verifies a file whose registry publishes no digest of its
	// bytes. Without Check the file must have the digest of About.
	Integrity string
	Check     func(content io.ReaderAt, size int64) error
	// Unverified is the reason why the file cannot be verified. Such a file is served only if the
	// policy permits it.
	Unverified string
	// Digest is set if the protocol has a name for the file by its digest.
	Digest string
	// Images are the images that have the file: for each, the versions by which it is known. A
	// policy that permits one of these images permits the file.
	Images [][]string
	// Locked is how lockfiles name the file.
	Locked LockedFile
	// Tolerated is set if nothing vouches for the file's list, which the policy permits.
	Tolerated bool
}

// Protocol knows how the registries of one ecosystem describe packages.
type Protocol interface {
	// Parse returns what a request for an escaped path is for.
	Parse(origin, path string) Target
	// File returns what the registry says about the file of a target.
	File(ctx context.Context, s Source, t Target) (File, error)
	// Listing returns the document of a target without the versions that keep rejects.
	Listing(ctx context.Context, s Source, t Target, keep Keep) (Listing, error)
}

// Forever is the Life of a text that never changes.
const Forever time.Duration = 1<<63 - 1

// Query names a text on a registry.
type Query struct {
	URL, Accept string
	// Life is how long a stored text may be used. Zero means the usual time for documents.
	Life time.Duration
	// Bypass reads the text from the registry and does not store it.
	Bypass bool
	// Digest is set if the text must have this digest.
	Digest Digest
	// Revalidate asks the registry for the digest of an old text first. If the digest is that of the
	// stored text, nothing is fetched.
	Revalidate bool
	// Check verifies the text, each time before it is used or stored. Sandboxes share stored texts,
	// so one that it rejects must not stay there. Nil accepts every text.
	Check func(t Text) error
}

// Text is a text of a registry.
type Text struct {
	Body   []byte
	SHA256 string // in hexadecimal
	Type   string // Content-Type
	// Modified is the time of the header Last-Modified.
	Modified time.Time
}

// Source reads what registries publish, through the cache.
type Source interface {
	// Text returns a text. The error is ErrAbsent if the registry does not have it.
	Text(ctx context.Context, q Query) (Text, error)
	// Fresh returns the SHA-256 of the stored text that Text would return. It does not read it. It
	// returns false if Text would fetch the text, or needs more than its age to know.
	Fresh(q Query) (string, bool)
	// Stored returns a text that Store has stored, or ErrAbsent.
	Stored(key string) ([]byte, error)
	// Store stores a text that a protocol has verified or made. It is best effort: without it, the
	// text is fetched or made again.
	Store(ctx context.Context, key string, text []byte)
	// Parsed returns the result of parse, which is remembered under a key. With an empty key, it is
	// not remembered. The number of parsers at the same time is limited.
	Parsed(ctx context.Context, key string, parse func() (any, error)) (any, error)
	// Dated reports whether the gate needs times of publication.
	Dated() bool
	// Unverified reports whether the policy permits something that cannot be verified, by its name.
	Unverified(name string) bool
}

// Parsed is Source.Parsed with a type.
func Parsed[T any](ctx context.Context, s Source, key string, parse func() (T, error)) (T, error) {
	out, err := s.Parsed(ctx, key, func() (any, error) { return parse() })
	if err != nil {
		var none T
		return none, err
	}
	return out.(T), nil
}

// ErrAbsent is returned if a registry does not have a text.
var ErrAbsent = errors.New("the registry does not have it")

// Failure is a reason why a registry's answer cannot be used.
type Failure struct {
	// Rule is RuleIntegrity or RuleRequest.
	Rule, Reason string
	// Absent is set if the registry has no such file.
	Absent bool
	// Unverified is set if nothing vouches for it, which the policy can permit.
	Unverified bool
	Cause      error
}

// Error returns the reason.
func (f *Failure) Error() string { return f.Reason }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Cause }

// Rules of refusals that no policy can change.
const (
	RuleIntegrity = "packages.integrity"
	RuleRequest   = "packages.request"
	RuleOffline   = "packages.offline"
)

// Unreadable returns the failure for a document that cannot be parsed.
func Unreadable(err error) error {
	return &Failure{Rule: RuleRequest, Reason: "the registry's document cannot be read: " + err.Error(), Cause: err}
}

// NoSuchFile returns the failure for a file that no version has.
func NoSuchFile(name string) error {
	return &Failure{Rule: RuleRequest, Reason: "no version of " + name + " has this file", Absent: true}
}

// Tampered returns the failure for content that is not what the registry's data says.
func Tampered(reason string) error { return &Failure{Rule: RuleIntegrity, Reason: reason} }
