package quickjsbin_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/host/embedded/quickjsbin"
)

// The module is the one whose digest the sources and the script that gets it name.
func TestModuleHasTheNamedDigest(t *testing.T) {
	path, err := quickjsbin.Path(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	if got := hex.EncodeToString(sum[:]); got != quickjsbin.Digest {
		t.Errorf("the module has the digest %s, want %s", got, quickjsbin.Digest)
	}
	script, err := os.ReadFile("quickjs/fetch.sh")
	if err != nil || !strings.Contains(string(script), "digest="+quickjsbin.Digest+"\n") {
		t.Errorf("quickjs/fetch.sh does not check the digest %s (%v)", quickjsbin.Digest, err)
	}
}
