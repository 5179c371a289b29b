package provenance

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Flaw is the reason why a provenance fails verification.
type Flaw string

const (
	BadEnvelope  Flaw = "envelope"   // it is not an envelope
	OtherType    Flaw = "type"       // the envelope holds something other than a statement
	BadCount     Flaw = "signatures" // the number of signatures is not one
	OtherKey     Flaw = "key"        // signed by another key
	BadSignature Flaw = "signature"  // payload or signature were changed
	BadStatement Flaw = "statement"  // validly signed, but not a statement of Crannog
	OtherFile    Flaw = "artifact"   // no exported file has this content
	OtherName    Flaw = "name"       // the file was exported under another name
	OtherPolicy  Flaw = "policy"     // another policy was in force
	BadRecord    Flaw = "record"     // the signed tree head belongs to another audit log
)

// Finding is one reason why the verification fails.
type Finding struct {
	Flaw Flaw
	Text string
}

func finding(f Flaw, format string, args ...any) Finding {
	return Finding{f, fmt.Sprintf(format, args...)}
}

// Check has the expected values for verifying a provenance.
type Check struct {
	Key PublicKey
	// Artifact is the SHA-256 of the file in hexadecimal. Path is its absolute, clean path. A
	// subject's name must be a suffix of Path. Otherwise one attested file could replace another.
	Artifact string
	Path     string
	// As, if set, is the subject name that the file must have.
	As string
	// Policy, if set, is the digest of the policy that must have been in force.
	Policy string
}

// Verify checks an envelope against c. The statement is trustworthy only if there are no findings.
// If the signature is invalid, Verify returns no statement.
func Verify(data []byte, c Check) (*Statement, []Finding) {
	var st Statement
	if f := openSigned(data, c.Key, &st); f != nil {
		return nil, []Finding{*f}
	}
	var found []Finding
	if f := st.matches(c); f != nil {
		found = append(found, *f)
	}
	if got := st.Predicate.BuildDefinition.ExternalParameters.Policy; c.Policy != "" && got != c.Policy {
		found = append(found, finding(OtherPolicy, "it came out under the policy %.100s, and not under %.100s", got, c.Policy))
	}
	return &st, found
}

// openSigned reads the statement of an envelope that a key has signed. It returns the reason if the
// signature or the form of the statement is not valid.
func openSigned(data []byte, key PublicKey, st interface{ check() error }) *Finding {
	reject := func(f Flaw, format string, args ...any) *Finding {
		out := finding(f, format, args...)
		return &out
	}
	e, err := open(data)
	if err != nil {
		return reject(BadEnvelope, "it is not an envelope: %v", err)
	}
	if e.payloadType != PayloadType {
		return reject(OtherType, "the envelope holds %.100q, not an in-toto statement", e.payloadType)
	}
	// A second signature could be of a key that the caller did not choose.
	if len(e.signatures) != 1 {
		return reject(BadCount, "the envelope has %d signatures, and must have one", len(e.signatures))
	}
	s := e.signatures[0]
	if s.keyID != key.ID() {
		return reject(OtherKey, "it names the signing key %.100q, not %s", s.keyID, key.ID())
	}
	if len(s.sig) != ed25519.SignatureSize {
		return reject(BadSignature, "the signature has %d bytes, and must have %d: it was cut or exchanged", len(s.sig), ed25519.SignatureSize)
	}
	if !ed25519.Verify(key.key, pae(e.payloadType, e.payload), s.sig) {
		return reject(BadSignature, "the signature does not hold: the statement or the signature was changed, or another key made it")
	}
	if err := decodeStrict(e.payload, st); err != nil {
		return reject(BadStatement, "the signed payload is not a statement: %v", err)
	}
	if err := st.check(); err != nil {
		return reject(BadStatement, "the signed payload is not a statement of Crannog: %v", err)
	}
	return nil
}

func (s *Statement) check() error {
	d := s.Predicate.BuildDefinition
	if err := checkTypes([3]string{s.Type, s.PredicateType, d.BuildType}, BuildType, d.ExternalParameters.Policy); err != nil {
		return err
	}
	return checkSubjects(s.Subject)
}

// checkTypes rejects statements of other types, so that a signature for one purpose is not accepted
// for another, and statements without a policy. got is the type of the statement, of its predicate
// and of the build.
func checkTypes(got [3]string, buildType, policy string) error {
	for i, want := range [3]string{statementType, predicateType, buildType} {
		if got[i] != want {
			return fmt.Errorf("its %s is %.100q", [3]string{"type", "predicate", "build type"}[i], got[i])
		}
	}
	if policy == "" {
		return errors.New("it names no policy")
	}
	return nil
}

// checkSubjects rejects a list without subjects, and subjects without a digest or with the name of
// another.
func checkSubjects(list []Resource) error {
	if len(list) == 0 {
		return errors.New("it has no subjects")
	}
	names := make(map[string]bool, len(list))
	for _, r := range list {
		if r.Name == "" || r.Digest == nil || len(r.Digest.SHA256) != 64 {
			return fmt.Errorf("it names the subject %.100q without a SHA-256", r.Name)
		}
		if names[r.Name] {
			return fmt.Errorf("it names the subject %.100q twice", r.Name)
		}
		names[r.Name] = true
	}
	return nil
}

// Artifact returns the subject for the whole written file.
func (s *Statement) Artifact() (Resource, bool) {
	name := artifactName(s.Predicate.BuildDefinition.ExternalParameters.Out)
	i := slices.IndexFunc(s.Subject, func(r Resource) bool { return r.Name == name })
	if i < 0 {
		return Resource{}, false
	}
	return s.Subject[i], true
}

// expected returns the subject that a file has to match: the subject that c.As names, otherwise the
// written file, otherwise (if none was written) the subject with the file's path. A file within an
// export must be named with c.As. Otherwise a program inside could create a file with the name of
// the export, which would be accepted as the export.
func (s *Statement) expected(c Check) (Resource, bool) {
	if a, ok := s.Artifact(); ok && c.As == "" {
		return a, true
	}
	best, at := Resource{}, escaped(c.Path)
	for _, r := range s.Subject {
		switch {
		case c.As != "" && r.Name == c.As:
			return r, true
		case c.As == "" && s.endsWith(at, r.Name) && len(r.Name) > len(best.Name):
			best = r
		}
	}
	return best, best.Name != ""
}

// endsWith reports whether a path ends with a subject's name relative to the export directory.
func (s *Statement) endsWith(file, name string) bool {
	rel, ok := strings.CutPrefix(name, path.Clean(s.Predicate.BuildDefinition.ExternalParameters.Dir)+"/")
	return ok && rel != "" && strings.HasSuffix(file, "/"+rel)
}

// matches compares the file with the subjects.
func (s *Statement) matches(c Check) *Finding {
	wrong := func(f Flaw, format string, args ...any) *Finding {
		out := finding(f, format, args...)
		return &out
	}
	r, ok := s.expected(c)
	if ok && r.Digest.SHA256 == c.Artifact {
		return nil
	}
	if c.As != "" {
		if !ok {
			return wrong(OtherName, "nothing came out as %.200q", c.As)
		}
		return wrong(OtherFile, "the file has SHA-256 %s, and %.200q came out with %s: it was exchanged or changed", c.Artifact, r.Name, r.Digest.SHA256)
	}
	for _, other := range s.Subject {
		if other.Digest.SHA256 == c.Artifact {
			return wrong(OtherName, "the file has the content of %.200q, but another name; to accept it as that file, use --as %.200q", other.Name, other.Name)
		}
	}
	if ok {
		return wrong(OtherFile, "the file has SHA-256 %s, and %.200q came out with %s: it was exchanged or changed", c.Artifact, r.Name, r.Digest.SHA256)
	}
	return wrong(OtherFile, "the file has SHA-256 %s, which no file that came out has: it was exchanged, or changed after it was signed", c.Artifact)
}

// Matched returns the subject that a verified file matches.
func (s *Statement) Matched(c Check) (Resource, bool) { return s.expected(c) }
