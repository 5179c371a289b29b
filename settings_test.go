package crannog_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog"
)

// Local refuses settings of which it understands only a part: the rest might forbid something.
func TestLocalRejectsInvalidSettings(t *testing.T) {
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := "policy: v1\nnetwork: {unlisted: deny}\n"
	named := crannog.FromConfig(file("config.toml", "organisation_policy = \""+file("org.yaml", good)+"\"\n"))
	for name, c := range map[string]struct {
		opts []crannog.LocalOption
		code string
	}{
		"no file":           {[]crannog.LocalOption{crannog.FromConfig(filepath.Join(t.TempDir(), "none"))}, "invalid_settings"},
		"a misspelled name": {[]crannog.LocalOption{crannog.FromConfig(file("c.toml", "organization_policy = \"/x\"\n"))}, "invalid_settings"},
		"a broken policy":   {[]crannog.LocalOption{crannog.FromConfig(file("c.toml", "organisation_policy = \""+file("o.yaml", "policy: v1\nnet: {}\n")+"\"\n"))}, "policy_invalid"},
		"an unknown level":  {[]crannog.LocalOption{crannog.FromConfig(file("c.toml", "default_level = \"king\"\n"))}, "level_unknown"},
		"a broken text":     {[]crannog.LocalOption{crannog.OrganisationPolicy("policy: v1\nnet: {}\n")}, "policy_invalid"},
		"two":               {[]crannog.LocalOption{named, crannog.OrganisationPolicy(good)}, "organisation_policy_twice"},
		"two, reversed":     {[]crannog.LocalOption{crannog.OrganisationPolicy(good), named}, "organisation_policy_twice"},
		// The last check is that this program has called Main.
		"good":      {[]crannog.LocalOption{named}, "main_not_called"},
		"good text": {[]crannog.LocalOption{crannog.OrganisationPolicy(good), crannog.FromConfig(file("c.toml", "max_live = 1\n"))}, "main_not_called"},
	} {
		_, err := crannog.Local(t.Context(), append(c.opts, crannog.State(t.TempDir()))...)
		if crannog.Code(err) != c.code || !errors.Is(err, crannog.ErrInvalid) {
			t.Errorf("%s: Local: error %v with code %q, want %q", name, err, crannog.Code(err), c.code)
		}
	}
}
