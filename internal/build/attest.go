package build

import (
	"cmp"
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

// inputs are what a build has used. Stages use them concurrently. Nil stands for a build that is not
// signed, for which nothing is computed.
type inputs struct {
	mu      sync.Mutex
	context string // SHA-256 of the tar, or ""
	list    map[inputKey]provenance.Resource
}

// inputKey identifies an input. One name can have had several contents during a build.
type inputKey struct{ name, digest string }

// add adds an input.
func (n *inputs) add(r provenance.Resource) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.list == nil {
		n.list = map[inputKey]provenance.Resource{}
	}
	key := inputKey{name: r.Name + r.URI}
	if r.Digest != nil {
		key.digest = r.Digest.SHA256 + r.Digest.GitCommit
	}
	n.list[key] = r
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

// remote returns addRemote, or nil for a build that is not signed.
func (n *inputs) remote() func(uri, sha256, commit string) {
	if n == nil {
		return nil
	}
	return n.addRemote
}

// readContext computes the checksum of the context, and leaves the file at its beginning.
func (n *inputs) readContext(f *os.File) error {
	if n == nil {
		return nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	n.context = hex.EncodeToString(h.Sum(nil))
	_, err := f.Seek(0, io.SeekStart)
	return err
}

// sorted returns the images and remote sources in a fixed order. A source of unknown content is left
// out if its content became known later.
func (n *inputs) sorted() []provenance.Resource {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := map[string]bool{}
	for key := range n.list {
		known[key.name] = known[key.name] || key.digest != ""
	}
	var out []provenance.Resource
	for _, key := range slices.SortedFunc(maps.Keys(n.list), func(x, y inputKey) int {
		return cmp.Or(strings.Compare(x.name, y.name), strings.Compare(x.digest, y.digest))
	}) {
		if key.digest != "" || !known[key.name] {
			out = append(out, n.list[key])
		}
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
			ID: r.ID, StartedAt: r.Created, EndedAt: now(), Record: provenance.Checkpoint(treeHead), Version: s.o.Signing.Version,
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
