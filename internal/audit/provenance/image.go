package provenance

import (
	"fmt"
	"strings"
)

// ImageBuildType identifies the format of the parameters of a build of an image.
const ImageBuildType = "https://github.com/crannog/crannog/docs/provenance.md#image-v1"

// ImageStatement is a statement about an image that was built from a Dockerfile. Its subject is the
// image, by its name and the digest of its manifest.
type ImageStatement struct {
	Type          string         `json:"_type"`
	Subject       []Resource     `json:"subject"`
	PredicateType string         `json:"predicateType"`
	Predicate     ImagePredicate `json:"predicate"`
}

// ImagePredicate describes how the image was built.
type ImagePredicate struct {
	BuildDefinition ImageDefinition `json:"buildDefinition"`
	RunDetails      RunDetails      `json:"runDetails"`
}

// ImageDefinition describes the request and its inputs: images, files of other servers, and git
// repositories.
type ImageDefinition struct {
	BuildType            string        `json:"buildType"`
	ExternalParameters   ImageExternal `json:"externalParameters"`
	ResolvedDependencies []Resource    `json:"resolvedDependencies,omitempty"`
}

// ImageExternal has what the caller chose. It has the names of arguments and secrets and no values,
// because an argument may contain a secret too.
type ImageExternal struct {
	Dockerfile string   `json:"dockerfile"`        // SHA-256 of its text
	Context    string   `json:"context,omitempty"` // SHA-256 of the tar with the context
	Target     string   `json:"target,omitempty"`
	Platform   string   `json:"platform,omitempty"`
	Args       []string `json:"args,omitempty"`
	Secrets    []string `json:"secrets,omitempty"`
	NoCache    bool     `json:"noCache,omitempty"`
	// Epoch is SOURCE_DATE_EPOCH in seconds; 0 means that it is not set.
	Epoch int64 `json:"sourceDateEpoch,omitempty"`
	// Policy is the digest of the policy of the sandboxes in which commands run. Level is the level
	// that it extends.
	Policy string `json:"policy"`
	Level  string `json:"level"`
}

// ImageBuild has the facts of a statement about an image.
type ImageBuild struct {
	Name         string
	Digest       string // sha256:HEX
	External     ImageExternal
	Dependencies []Resource
	Run          Run
}

// digestPrefix begins the digest of an image.
const digestPrefix = "sha256:"

// Statement returns the statement about an image.
func (b ImageBuild) Statement() ImageStatement {
	return ImageStatement{
		Type: statementType, PredicateType: predicateType,
		Subject: []Resource{{Name: b.Name, Digest: &Digest{SHA256: strings.TrimPrefix(b.Digest, digestPrefix)}}},
		Predicate: ImagePredicate{
			BuildDefinition: ImageDefinition{BuildType: ImageBuildType, ExternalParameters: b.External, ResolvedDependencies: b.Dependencies},
			RunDetails:      b.Run.details(),
		},
	}
}

// ImageCheck has the expected values for verifying the provenance of an image.
type ImageCheck struct {
	Key PublicKey
	// Digest is the digest of the image, sha256:HEX. Its name is not compared: anyone can name an
	// image, and the digest determines its content.
	Digest string
	// Policy, if set, is the digest of the policy that must have been in force.
	Policy string
}

// VerifyImage checks an envelope against c. The statement is trustworthy only if there are no
// findings. If the signature is invalid, VerifyImage returns no statement.
func VerifyImage(data []byte, c ImageCheck) (*ImageStatement, []Finding) {
	var st ImageStatement
	if f := openSigned(data, c.Key, &st); f != nil {
		return nil, []Finding{*f}
	}
	var found []Finding
	if got := digestPrefix + st.Subject[0].Digest.SHA256; got != c.Digest {
		found = append(found, finding(OtherFile, "the image is %.100s, and the statement is about %s", c.Digest, got))
	}
	if got := st.Predicate.BuildDefinition.ExternalParameters.Policy; c.Policy != "" && got != c.Policy {
		found = append(found, finding(OtherPolicy, "it was built under the policy %.100s, and not under %.100s", got, c.Policy))
	}
	return &st, found
}

func (s *ImageStatement) check() error {
	d := s.Predicate.BuildDefinition
	if err := checkTypes([3]string{s.Type, s.PredicateType, d.BuildType}, ImageBuildType, d.ExternalParameters.Policy); err != nil {
		return err
	}
	if len(s.Subject) != 1 {
		return fmt.Errorf("it has %d subjects, and must have one", len(s.Subject))
	}
	return checkSubjects(s.Subject)
}
