package crannog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/provenance"
)

// copySignedExport reads a multipart response and writes its two parts, the envelope and the
// export.
func copySignedExport(resp *http.Response, envelope, export io.Writer) error {
	kind, params, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/mixed" {
		return errors.New("crannog: the server cannot sign exports; it has an earlier version")
	}
	parts := multipart.NewReader(resp.Body, params["boundary"])
	first, err := parts.NextRawPart()
	if err != nil {
		return errors.Join(errExportCut, err)
	}
	data, err := io.ReadAll(io.LimitReader(first, provenance.MaxEnvelope+1))
	if err != nil {
		return errors.Join(errExportCut, err)
	}
	if first.Header.Get("Content-Type") != provenance.EnvelopeType || len(data) > provenance.MaxEnvelope {
		return errors.New("crannog: the export has no envelope")
	}
	second, err := parts.NextRawPart()
	if err != nil {
		return errors.Join(errExportCut, err)
	}
	if _, err := envelope.Write(data); err != nil {
		return err
	}
	n, err := io.Copy(export, second)
	if err != nil {
		return errors.Join(errExportCut, err)
	}
	if strconv.FormatInt(n, 10) != second.Header.Get("Content-Length") {
		return errExportCut
	}
	if _, err := parts.NextRawPart(); !errors.Is(err, io.EOF) {
		return errors.Join(errExportCut, err)
	}
	return nil
}

// ProvenanceKey returns the public key that verifies signatures of exports and builds.
func (c *Client) ProvenanceKey(ctx context.Context) (api.ProvenanceKey, error) {
	var out api.ProvenanceKey
	err := c.call(ctx, http.MethodGet, "/provenance/key", nil, &out)
	return out, err
}

// ArtifactCheck contains the expected properties of an envelope. Envelope, Key and File are
// required.
type ArtifactCheck struct {
	Envelope []byte
	// Key is the public key of the expected signer, in PEM. It must come from a trusted source, not
	// with the envelope.
	Key string
	// File is the file to verify. For a statement about an export, File is the whole export, or the
	// file of it that has the path As in the sandbox. For a statement about applied files, File is
	// the one whose name is a suffix of Path, or is As.
	File io.Reader
	Path string // absolute
	As   string
	// Policy, if given, is the digest of the policy that must have been in force.
	Policy string
	// RecordKey, if given, is the key that must have signed the tree head of the audit
	// log.
	RecordKey string
}

// VerifyArtifact verifies, without a server, that a file was exported from a sandbox as a signed
// statement describes. Findings are the reasons why the verification fails. The error means that
// the verification was not possible.
func VerifyArtifact(c ArtifactCheck) (api.ProvenanceCheck, error) {
	key, err := provenance.ParseKey([]byte(c.Key))
	if err != nil {
		return api.ProvenanceCheck{}, fromFault(err)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, c.File); err != nil {
		return api.ProvenanceCheck{}, fmt.Errorf("crannog: read the file: %w", err)
	}
	check := provenance.Check{Key: key, Artifact: hex.EncodeToString(sum.Sum(nil)), Path: c.Path, As: c.As, Policy: c.Policy}
	out := api.ProvenanceCheck{SHA256: check.Artifact, Key: key.ID(), RecordKey: c.RecordKey}
	st, findings := provenance.Verify(c.Envelope, check)
	if st == nil {
		return withFindings(out, findings), nil
	}
	if out, err = withStatement(out, st, st.Predicate.RunDetails, findings); err == nil && out.OK {
		subject, _ := st.Matched(check)
		out.Subject = subject.Name
	}
	return out, err
}

// ImageCheck contains the expected properties of an envelope about an image. All but Policy and
// RecordKey are required.
type ImageCheck struct {
	Envelope []byte
	// Key is the public key of the expected signer, in PEM. It must come from a trusted source, not
	// with the envelope.
	Key string
	// Digest is the digest of the image, as InspectImage returns it.
	Digest string
	// Policy, if given, is the digest of the policy under which the commands of the build must have
	// run.
	Policy string
	// RecordKey, if given, is the key that must have signed the tree head of the audit log.
	RecordKey string
}

// VerifyImage verifies, without a server, that an image was built as a signed statement describes.
// Findings are the reasons why the verification fails. The error means that the verification was
// not possible.
func VerifyImage(c ImageCheck) (api.ProvenanceCheck, error) {
	key, err := provenance.ParseKey([]byte(c.Key))
	if err != nil {
		return api.ProvenanceCheck{}, fromFault(err)
	}
	out := api.ProvenanceCheck{SHA256: strings.TrimPrefix(c.Digest, "sha256:"), Key: key.ID(), RecordKey: c.RecordKey}
	st, findings := provenance.VerifyImage(c.Envelope, provenance.ImageCheck{Key: key, Digest: c.Digest, Policy: c.Policy})
	if st == nil {
		return withFindings(out, findings), nil
	}
	if out, err = withStatement(out, st, st.Predicate.RunDetails, findings); err == nil && out.OK {
		out.Subject = st.Subject[0].Name
	}
	return out, err
}

// withFindings returns a result with findings. Without any, the verification has succeeded.
func withFindings(out api.ProvenanceCheck, findings []provenance.Finding) api.ProvenanceCheck {
	for _, f := range findings {
		out.Findings = append(out.Findings, api.ProvenanceFinding{Fault: string(f.Flaw), Text: f.Text})
	}
	out.OK = len(findings) == 0
	return out
}

// withStatement returns a result with a statement whose signature is valid. It also compares the
// signed tree head if out.RecordKey is given.
func withStatement(out api.ProvenanceCheck, statement any, run provenance.RunDetails, findings []provenance.Finding) (api.ProvenanceCheck, error) {
	if out.RecordKey != "" {
		f, err := checkRecord(run, out.RecordKey)
		if err != nil {
			return api.ProvenanceCheck{}, fromFault(err)
		}
		findings = append(findings, f...)
	}
	var err error
	if out.Statement, err = json.Marshal(statement); err != nil {
		return api.ProvenanceCheck{}, err
	}
	return withFindings(out, findings), nil
}

// checkRecord checks that the audit log with the given key signed the tree head in a statement.
func checkRecord(run provenance.RunDetails, key string) ([]provenance.Finding, error) {
	if err := audit.CheckKey(key); err != nil {
		return nil, err
	}
	finding := func(text string) ([]provenance.Finding, error) {
		return []provenance.Finding{{Flaw: provenance.BadRecord, Text: text}}, nil
	}
	point, ok := run.Checkpoint()
	if !ok {
		return finding("the statement names no signed tree head")
	}
	c, err := audit.OpenCheckpoint(point.Note, key)
	if err != nil {
		return finding("the signed tree head in the statement does not belong to that audit log: " + err.Error())
	}
	if c.Size != point.Size || c.Root != point.Root {
		return finding("the statement contradicts its signed tree head about the audit log")
	}
	return nil, nil
}
