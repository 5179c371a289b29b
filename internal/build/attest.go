package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/audit/payload"
	"github.com/crannog/crannog/internal/audit/provenance"
	"github.com/crannog/crannog/internal/sandbox"
)

// Signing is what signed statements about builds need.
type Signing struct {
	Keys *provenance.Keys
	// Version is the version of this program.
	Version string
	// Policy returns the digest and the level of the policy of the sandboxes of a build.
	Policy func(sandbox.Access) (digest, level string, err error)
}

// inputs are what a build has used. Stages use them concurrently.
type inputs struct {
	mu      sync.Mutex
	context string // SHA-256 of the tar, or ""
	list    map[string]provenance.Resource
}

// add adds an input. If it is known already, its digest is preferred to none.
func (n *inputs) add(r provenance.Resource) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.list == nil {
		n.list = map[string]provenance.Resource{}
	}
	key := r.Name + " " + r.URI
	if r.Digest != nil || n.list[key].Digest == nil {
		n.list[key] = r
	}
}

// addImage adds an image, by its name in the Dockerfile and the digest of its manifest.
func (n *inputs) addImage(name, sha256 string) {
	n.add(provenance.Resource{Name: name, Digest: &provenance.Digest{SHA256: sha256}})
}

// addRemote adds a source of ADD: a file with its SHA-256, or a git repository with its commit.
func (n *inputs) addRemote(uri, sha256, commit string) {
	r := provenance.Resource{URI: uri}
	if sha256 != "" || commit != "" {
		r.Digest = &provenance.Digest{SHA256: sha256, GitCommit: commit}
	}
	n.add(r)
}

// readContext computes the checksum of the context, and leaves the file at its beginning.
func (n *inputs) readContext(f *os.File) error {
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	n.context = hex.EncodeToString(h.Sum(nil))
	_, err := f.Seek(0, io.SeekStart)
	return err
}

// sorted returns the images and remote sources in a fixed order.
func (n *inputs) sorted() []provenance.Resource {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []provenance.Resource
	for _, key := range slices.Sorted(maps.Keys(n.list)) {
		out = append(out, n.list[key])
	}
	return out
}

// attest signs a statement about an image. The signed tree head in the statement covers the audit
// entry of the build. An entry about the signature is durable before the caller gets the
// signature, so the audit log lists all signatures.
func (s *Service) attest(ctx context.Context, l *liveBuild, r Record, n *inputs) (json.RawMessage, error) {
	policy, level, err := s.o.Signing.Policy(l.req.Access)
	if err != nil {
		return nil, err
	}
	treeHead, err := s.o.Audit.Recorder().Checkpoint(ctx)
	if err != nil {
		return nil, err
	}
	name, _, _ := strings.Cut(treeHead.Note, "\n")
	file := sha256.Sum256(l.req.Dockerfile)
	external := provenance.ImageExternal{
		Dockerfile: hex.EncodeToString(file[:]), Context: n.context, Target: l.req.Target, Platform: l.req.Platform,
		Args: slices.Sorted(maps.Keys(l.req.Args)), Secrets: slices.Sorted(maps.Keys(l.req.Secrets)), NoCache: l.req.NoCache,
		Policy: policy, Level: level,
	}
	if !l.req.Epoch.IsZero() {
		external.Epoch = l.req.Epoch.Unix()
	}
	signer, err := s.o.Signing.Keys.Signer()
	if err != nil {
		return nil, err
	}
	envelope, err := signer.SignImage(provenance.ImageBuild{
		Name: r.Tag, Digest: r.Digest, External: external, Dependencies: n.sorted(),
		Run: provenance.Run{
			ID: r.ID, StartedAt: r.Created, EndedAt: now(),
			Record: provenance.Checkpoint{Size: treeHead.Size, Root: treeHead.Root, Note: treeHead.Note},
			Server: strings.TrimPrefix(name, "crannog/"), Version: s.o.Signing.Version,
		},
	}.Statement())
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(envelope)
	if err := s.o.Audit.Append(ctx, audit.Draft{Kind: audit.ProvenanceSigned, Actor: l.caller.Actor(), Data: payload.Provenance{
		Artifact: strings.TrimPrefix(r.Digest, "sha256:"), Subjects: 1, Envelope: hex.EncodeToString(sum[:]), Key: signer.Public.ID(),
		Policy: policy, Checkpoint: treeHead.Size,
	}}); err != nil {
		return nil, err
	}
	return envelope, nil
}
