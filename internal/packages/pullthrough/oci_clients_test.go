package pullthrough_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/packages/pullthrough"
)

// skopeo copies an image for all platforms twice, the second time only from the cache.
func TestSkopeoCopiesThroughCache(t *testing.T) {
	needClient(t, "skopeo")
	r, service := newImageRegistry(t), newTokenService(t)
	top, _, layer := parts(t, r.push("acme/app", "1.0"))
	r.protect(`Bearer realm="`+service.URL+`/token",service="registry"`, "anonymous")
	front, dir := r.front(pullthrough.New(newStorage(t), time.Now)), t.TempDir()
	image := "docker://" + strings.TrimPrefix(front.URL, "http://") + "/acme/app"
	for _, to := range []string{"first", "second"} {
		r.requests()
		client(t, dir, "skopeo", "--insecure-policy", "copy", "--all", "--src-tls-verify=false", "--src-no-creds", image+":1.0", "dir:"+filepath.Join(dir, to))
		text, err := os.ReadFile(filepath.Join(dir, to, strings.TrimPrefix(layer, "sha256:")))
		if err != nil || "sha256:"+hexSum(string(text)) != layer {
			t.Errorf("the %s copy has a layer of %d bytes (%v), want %s", to, len(text), err, layer)
		}
		if list := content(r.requests()); to == "second" && len(list) > 0 {
			t.Errorf("the second copy made the requests %v, want none", list)
		}
	}
	if out := client(t, dir, "skopeo", "inspect", "--tls-verify=false", "--no-creds", "--format", "{{.Digest}} {{.RepoTags}}", image+"@"+top); !strings.Contains(out, top) || !strings.Contains(out, "[1.0]") {
		t.Errorf("inspect: got %s, want %s and its tag", out, top)
	}
}
