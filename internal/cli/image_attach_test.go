package cli

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAttachmentType(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	for text, want := range map[string]string{
		`{"spdxVersion":"SPDX-2.3"}`:                     spdxType,
		`{"bomFormat":"CycloneDX","specVersion":"1.5"}`:  cycloneDXType,
		`{"payloadType":"application/vnd.in-toto+json"}`: provenanceType,
		`{"payloadType":"text/plain"}`:                   "",
		`{"name":"x"}`:                                   "",
		`[]`:                                             "",
		`{"spdxVersion":"SPDX-2.3"} and more`:            "",
		"# Read me":                                      "",
		"":                                               "",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := attachmentType(file); err != nil || got != want {
			t.Errorf("%s: got %q, error %v, want %q", text, got, err, want)
		}
	}
	if got, err := attachmentType(file + "-missing"); err == nil {
		t.Errorf("a missing file: got %q, want an error", got)
	}
}
