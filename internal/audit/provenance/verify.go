package provenance

import (
	"crypto/ed25519"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Flaw is the reason why a provenance does not hold.
type Flaw string

const (
	BadEnvelope  Flaw = "envelope"   // it has not the form of one
	OtherType    Flaw = "type"       // it holds something else than a statement
	BadCount     Flaw = "signatures" // it has not exactly one
	OtherKey     Flaw = "key"        // somebody else signed
	BadSignature Flaw = "signature"  // payload or signature were changed
	BadStatement Flaw = "statement"  // it is signed, and no statement of ours
	OtherFile    Flaw = "artifact"   // the file is not one that came out
	OtherName    Flaw = "name"       // the file came out under another name
	OtherPolicy  Flaw = "policy"     // another policy governed
	BadRecord    Flaw = "record"     // its checkpoint is not of the record
)

// Finding is one thing that does not hold.
type Finding struct {
	Flaw Flaw
	Text string
}

func finding(f Flaw, format string, args ...any) Finding {
	return Finding{f, fmt.Sprintf(format, args...)}
}

// Check is what a provenance is held against.
type Check struct {
	Key PublicKey
	// Artifact is the SHA-256 of the file, in hexadecimal, and Path where it
	// lies, absolute and clean: a file of a sandbox must lie under the end of
	// that name, or an attested file could stand in for another one.
	Artifact string
	Path     string
	// As, if set, is the name of the subject that it must be.
	As string
	// Policy, if set, is the digest of the policy that must have governed.
	Policy string
}

// Verify holds an envelope against c. The statement counts only without
// findings; with findings about the signature there is none at all, because
// nothing of it would be true.
func Verify(data []byte, c Check) (*Statement, []Finding) {
	one := func(f Flaw, format string, args ...any) (*Statement, []Finding) {
		return nil, []Finding{finding(f, format, args...)}
	}
	e, err := open(data)
	if err != nil {
		return one(BadEnvelope, "it is no envelope: %v", err)
	}
	if e.payloadType != PayloadType {
		return one(OtherType, "the envelope holds %.100q, and not a statement of in-toto", e.payloadType)
	}
	// A second signature could be of a key that was not asked for.
	if len(e.signatures) != 1 {
		return one(BadCount, "the envelope has %d signatures, and must have one", len(e.signatures))
	}
	s := e.signatures[0]
	if s.keyID != c.Key.ID() {
		return one(OtherKey, "it says that it is signed with the key %.100q, and not with %s", s.keyID, c.Key.ID())
	}
	if len(s.sig) != ed25519.SignatureSize {
		return one(BadSignature, "the signature has %d bytes, and must have %d: it was cut or exchanged", len(s.sig), ed25519.SignatureSize)
	}
	if !ed25519.Verify(c.Key.key, pae(e.payloadType, e.payload), s.sig) {
		return one(BadSignature, "the signature does not hold: the statement or the signature was changed, or another key made it")
	}
	var st Statement
	if err := strict(e.payload, &st); err != nil {
		return one(BadStatement, "what is signed is no statement: %v", err)
	}
	if err := st.check(); err != nil {
		return one(BadStatement, "what is signed is no statement of ours: %v", err)
	}
	var found []Finding
	if f := st.holds(c); f != nil {
		found = append(found, *f)
	}
	if got := st.Predicate.BuildDefinition.ExternalParameters.Policy; c.Policy != "" && got != c.Policy {
		found = append(found, finding(OtherPolicy, "it came out under the policy %.100s, and not under %.100s", got, c.Policy))
	}
	return &st, found
}

// check refuses statements of other forms, so that what is signed for one
// purpose does not pass for another.
func (s *Statement) check() error {
	switch {
	case s.Type != statementType:
		return fmt.Errorf("its type is %.100q", s.Type)
	case s.PredicateType != predicateType:
		return fmt.Errorf("its predicate is %.100q", s.PredicateType)
	case s.Predicate.BuildDefinition.BuildType != BuildType:
		return fmt.Errorf("its build type is %.100q", s.Predicate.BuildDefinition.BuildType)
	case len(s.Subject) == 0:
		return fmt.Errorf("it is about nothing")
	case s.Predicate.BuildDefinition.ExternalParameters.Policy == "":
		return fmt.Errorf("it names no policy")
	}
	names := make(map[string]bool, len(s.Subject))
	for _, r := range s.Subject {
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

// Artifact is the subject that is the whole file that was written.
func (s *Statement) Artifact() (Resource, bool) {
	name := artifactName(s.Predicate.BuildDefinition.ExternalParameters.Out)
	i := slices.IndexFunc(s.Subject, func(r Resource) bool { return r.Name == name })
	if i < 0 {
		return Resource{}, false
	}
	return s.Subject[i], true
}

// meant is the subject that a file is meant to be: what is named, else the
// whole file that was written, else, where none was, the file of that path. A
// file in an export has to be named, or a program inside could leave one there
// that is called like the export and passes for it.
func (s *Statement) meant(c Check) (Resource, bool) {
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

// endsWith reports whether a path ends with a subject's name below the directory
// that came out.
func (s *Statement) endsWith(file, name string) bool {
	rel, ok := strings.CutPrefix(name, path.Clean(s.Predicate.BuildDefinition.ExternalParameters.Dir)+"/")
	return ok && rel != "" && strings.HasSuffix(file, "/"+rel)
}

// holds compares the file with the subjects.
func (s *Statement) holds(c Check) *Finding {
	wrong := func(f Flaw, format string, args ...any) *Finding {
		out := finding(f, format, args...)
		return &out
	}
	r, ok := s.meant(c)
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
			return wrong(OtherName, "the file has the content of %.200q, and is not named so; --as %.200q says that it is meant to be that", other.Name, other.Name)
		}
	}
	if ok {
		return wrong(OtherFile, "the file has SHA-256 %s, and %.200q came out with %s: it was exchanged or changed", c.Artifact, r.Name, r.Digest.SHA256)
	}
	return wrong(OtherFile, "the file has SHA-256 %s, and nothing that came out has: it was exchanged, or changed after it was signed", c.Artifact)
}

// Matched is the subject that a file without findings is.
func (s *Statement) Matched(c Check) (Resource, bool) { return s.meant(c) }
