package provenance_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/audit/provenance"
)

func imageBuild() provenance.ImageBuild {
	return provenance.ImageBuild{
		Name: "app:1", Digest: "sha256:" + sum("manifest"),
		External:     provenance.ImageExternal{Dockerfile: sum("FROM scratch"), Args: []string{"VERSION"}, Policy: policy, Level: "standard"},
		Dependencies: []provenance.Resource{{Name: "base:1", Digest: &provenance.Digest{SHA256: sum("base")}}, {URI: "https://a.example/f"}},
		Run: provenance.Run{
			ID: "d1", StartedAt: time.Unix(1, 0), EndedAt: time.Unix(2, 0),
			Record: provenance.Checkpoint{Size: 7, Root: "r", Note: "crannog/1\n7\nr\n"}, Version: "v9",
		},
	}
}

func signImage(t testing.TB, s *provenance.Signer, st provenance.ImageStatement) []byte {
	t.Helper()
	out, err := s.SignImage(st)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestImageStatementContent(t *testing.T) {
	s := signer(t)
	st, found := provenance.VerifyImage(signImage(t, s, imageBuild().Statement()), provenance.ImageCheck{Key: s.Public, Digest: imageBuild().Digest, Policy: policy})
	if len(found) != 0 {
		t.Fatalf("VerifyImage: got findings %v, want none", found)
	}
	got, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{
		`"_type":"https://in-toto.io/Statement/v1"`, `"predicateType":"https://slsa.dev/provenance/v1"`, `"buildType":"` + provenance.ImageBuildType + `"`,
		`"subject":[{"name":"app:1","digest":{"sha256":"` + sum("manifest") + `"}}]`, `"args":["VERSION"]`, `"invocationId":"d1"`,
		`{"name":"base:1","digest":{"sha256":"` + sum("base") + `"}},{"uri":"https://a.example/f"}`,
	} {
		if !bytes.Contains(got, []byte(field)) {
			t.Errorf("the statement %s does not contain %s", got, field)
		}
	}
	if c, ok := st.Predicate.RunDetails.Checkpoint(); !ok || c != imageBuild().Run.Record {
		t.Errorf("Checkpoint: got %+v, %v, want %+v", c, ok, imageBuild().Run.Record)
	}
}

// P41: a changed, exchanged or foreign statement about an image is not accepted.
func TestVerifyImageFindsEveryChange(t *testing.T) {
	s, other := signer(t), signer(t)
	check := provenance.ImageCheck{Key: s.Public, Digest: imageBuild().Digest, Policy: policy}
	good := signImage(t, s, imageBuild().Statement())
	changed := func(edit func(*provenance.ImageStatement)) []byte {
		st := imageBuild().Statement()
		edit(&st)
		return signImage(t, s, st)
	}
	for name, c := range map[string]struct {
		data []byte
		edit func(*provenance.ImageCheck)
		want provenance.Flaw
	}{
		"no envelope":     {[]byte("{}"), nil, provenance.OtherType},
		"cut":             {good[:len(good)/2], nil, provenance.BadEnvelope},
		"another key":     {signImage(t, other, imageBuild().Statement()), nil, provenance.OtherKey},
		"changed payload": {edited(t, good, func(e *envelope) { e.Payload = base64.StdEncoding.EncodeToString([]byte("{}")) }), nil, provenance.BadSignature},
		"of an export":    {sign(t, s, release()), nil, provenance.BadStatement},
		"no subject":      {changed(func(st *provenance.ImageStatement) { st.Subject = nil }), nil, provenance.BadStatement},
		"two subjects": {changed(func(st *provenance.ImageStatement) {
			st.Subject = append(st.Subject, provenance.Resource{Name: "other:1", Digest: st.Subject[0].Digest})
		}), nil, provenance.BadStatement},
		"no policy":         {changed(func(st *provenance.ImageStatement) { st.Predicate.BuildDefinition.ExternalParameters.Policy = "" }), nil, provenance.BadStatement},
		"another predicate": {changed(func(st *provenance.ImageStatement) { st.PredicateType = "x" }), nil, provenance.BadStatement},
		"another image":     {good, func(c *provenance.ImageCheck) { c.Digest = "sha256:" + sum("another") }, provenance.OtherFile},
		"no digest":         {good, func(c *provenance.ImageCheck) { c.Digest = "" }, provenance.OtherFile},
		"another policy":    {good, func(c *provenance.ImageCheck) { c.Policy = "sha256:0" }, provenance.OtherPolicy},
	} {
		check := check
		if c.edit != nil {
			c.edit(&check)
		}
		if _, found := provenance.VerifyImage(c.data, check); len(found) != 1 || found[0].Flaw != c.want {
			t.Errorf("%s: got findings %v, want %s", name, found, c.want)
		}
	}
	// A statement about an image is no statement about an export either.
	if _, found := provenance.Verify(good, provenance.Check{Key: s.Public, Artifact: strings.TrimPrefix(check.Digest, "sha256:"), Path: "/app"}); len(found) != 1 || found[0].Flaw != provenance.BadStatement {
		t.Errorf("Verify: got findings %v, want %s", found, provenance.BadStatement)
	}
}
