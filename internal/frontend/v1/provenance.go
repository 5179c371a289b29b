package v1

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/audit/provenance"
	"github.com/crannog/crannog/internal/sandbox"
)

func (h *changeHandlers) registerKey(r *registry) {
	if h.signing == nil {
		return
	}
	register(r, op("provenance-key", "GET", "/provenance/key", "Get the public key that verifies signatures of exports"), h.provenanceKey)
}

type provenanceKeyOutput struct{ Body api.ProvenanceKey }

// provenanceKey has no access check, because the key can only verify signatures. It is created if
// there is none yet, so that it can be distributed before anything is signed.
func (h *changeHandlers) provenanceKey(context.Context, sandbox.Principal, *struct{}) (*provenanceKeyOutput, error) {
	signer, err := h.signing.Signer()
	if err != nil {
		return nil, err
	}
	return &provenanceKeyOutput{api.ProvenanceKey{ID: signer.Public.ID(), Key: signer.Public.PEM()}}, nil
}

// signedExport answers with the envelope and the file, in that order, so that a client can check
// the file while it arrives. The file's length is known, so that an incomplete file is detected.
func (h *changeHandlers) signedExport(out *sandbox.Exported, kind, masked string) (*exportOutput, error) {
	var head bytes.Buffer
	w := multipart.NewWriter(&head)
	part, err := w.CreatePart(textproto.MIMEHeader{"Content-Type": {provenance.EnvelopeType}})
	if err == nil {
		_, err = part.Write(out.Provenance)
	}
	if err == nil {
		_, err = w.CreatePart(textproto.MIMEHeader{"Content-Type": {kind}, "Content-Length": {strconv.FormatInt(out.Size, 10)}})
	}
	before := bytes.Clone(head.Bytes())
	head.Reset()
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	after := head.Bytes()
	length := int64(len(before)) + out.Size + int64(len(after))
	return &exportOutput{"multipart/mixed; boundary=" + w.Boundary(), strconv.FormatInt(length, 10), out.Digest, masked, func(c huma.Context) {
		defer out.Close()
		c.SetStatus(http.StatusOK)
		if _, err := io.Copy(c.BodyWriter(), io.MultiReader(bytes.NewReader(before), out, bytes.NewReader(after))); err != nil {
			h.log.Debug("export not sent", "err", err)
		}
	}}, nil
}
