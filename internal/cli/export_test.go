package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// A file and its provenance are both written, or neither, and existing files stay.
func TestWriteWithProvenanceWritesBothFilesOrNone(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		before, between string
		err             error
		ok              bool
	}{
		"success":                                {ok: true},
		"an error":                               {err: broken},
		"the file exists":                        {before: "file"},
		"the provenance exists":                  {before: "provenance"},
		"the file is created concurrently":       {between: "file"},
		"the provenance is created concurrently": {between: "provenance"},
	} {
		dir := t.TempDir()
		put := func(name string) {
			if name == "" {
				return
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte("somebody's"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		put(c.before)
		err := writeWithProvenance(filepath.Join(dir, "file"), filepath.Join(dir, "provenance"), func(file, envelope io.Writer) error {
			put(c.between)
			_, err := file.Write([]byte("ours"))
			_, more := envelope.Write([]byte("ours"))
			return errors.Join(err, more, c.err)
		})
		if (err == nil) != c.ok {
			t.Errorf("%s: writeWithProvenance: error %v", name, err)
		}
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			text, err := os.ReadFile(filepath.Join(dir, f.Name()))
			want := "ours"
			if f.Name() == c.before || f.Name() == c.between {
				want = "somebody's"
			} else if !c.ok {
				t.Errorf("%s: %s is left", name, f.Name())
			}
			if err != nil || string(text) != want {
				t.Errorf("%s: file %s: got %q, error %v", name, f.Name(), text, err)
			}
		}
		if c.ok && len(list) != 2 {
			t.Errorf("%s: got files %v, want 2", name, list)
		}
	}
}
