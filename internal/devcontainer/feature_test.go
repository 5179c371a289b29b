package devcontainer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/fault"
)

// published is a registry of features, by their references.
type published map[string]string

func (p published) find(_ context.Context, ref string) (Artifact, error) {
	text, ok := p[ref]
	if !ok {
		return Artifact{}, errors.New("there is no " + ref)
	}
	return Artifact{Digest: "sha256:" + ref, Description: []byte(text)}, nil
}

// resolve makes the plan of a configuration with features.
func resolve(t *testing.T, config string, registry published) (Plan, error) {
	t.Helper()
	o := Options{Dir: workspace(t, config), LookUp: none}
	plan, err := Make(o)
	if err != nil {
		t.Fatal(err)
	}
	return plan, plan.ResolveFeatures(t.Context(), o, registry.find)
}

func TestFeaturesAreOrdered(t *testing.T) {
	registry := published{
		"r/a:1": `{"id": "a", "installsAfter": ["r/c"]}`,
		"r/b:1": `{"id": "b", "dependsOn": {"r/d:1": {"x": "1"}}}`,
		"r/c:1": `{"id": "c", "installsAfter": ["r/never"]}`,
		"r/d:1": `{"id": "d", "options": {"x": {"type": "string", "default": "0"}}}`,
		"r/e:1": `{"id": "e", "dependsOn": {"r/d:1": {"x": "1"}}}`,
	}
	for name, c := range map[string]struct {
		config string
		want   string
	}{
		"by name":              {`"r/d:1": {}, "r/c:1": {}`, "r/c:1 r/d:1"},
		"after another":        {`"r/a:1": {}, "r/c:1": {}`, "r/c:1 r/a:1"},
		"after a missing one":  {`"r/c:1": {}`, "r/c:1"},
		"dependency":           {`"r/b:1": {}`, "r/d:1 r/b:1"},
		"shared dependency":    {`"r/b:1": {}, "r/e:1": {}`, "r/d:1 r/b:1 r/e:1"},
		"with other options":   {`"r/b:1": {}, "r/d:1": {"x": "2"}`, "r/d:1 r/d:1 r/b:1"},
		"same as a dependency": {`"r/b:1": {}, "r/d:1": {"x": "1"}`, "r/d:1 r/b:1"},
		"preferred":            {`"r/c:1": {}, "r/d:1": {}, "r/a:1": {}}, "overrideFeatureInstallOrder": ["r/d", "r/c"`, "r/d:1 r/c:1 r/a:1"},
	} {
		config := `{"image": "x", "features": {` + c.config + `}}`
		if strings.Contains(c.config, "[") {
			config = `{"image": "x", "features": {` + c.config + `]}`
		}
		plan, err := resolve(t, config, registry)
		var got []string
		for _, f := range plan.Installs {
			got = append(got, f.Reference)
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%s: got order %q, error %v, want %s", name, got, err, c.want)
		}
	}
}

// A registry cannot make the work endless.
func TestFeaturesThatDependOnThemselves(t *testing.T) {
	long := published{}
	for i := range maxFeatures + 1 {
		long[fmt.Sprintf("r/f%d:1", i)] = fmt.Sprintf(`{"id": "f", "dependsOn": {"r/f%d:1": {}}}`, i+1)
	}
	for name, c := range map[string]struct {
		config   string
		registry published
		text     string
	}{
		"itself":     {`"r/a:1": {}`, published{"r/a:1": `{"id": "a", "dependsOn": {"r/a:1": {}}}`}, "depends on itself"},
		"a circle":   {`"r/a:1": {}`, published{"r/a:1": `{"id": "a", "dependsOn": {"r/b:1": {}}}`, "r/b:1": `{"id": "b", "dependsOn": {"r/a:1": {}}}`}, "depends on itself"},
		"soft":       {`"r/a:1": {}, "r/b:1": {}`, published{"r/a:1": `{"id": "a", "installsAfter": ["r/b"]}`, "r/b:1": `{"id": "b", "installsAfter": ["r/a"]}`}, "wait for each other"},
		"very many":  {`"r/f0:1": {}`, long, "more than 50 features"},
		"no JSON":    {`"r/a:1": {}`, published{"r/a:1": `{`}, "not JSON"},
		"wrong type": {`"r/a:1": {}`, published{"r/a:1": `{"options": 1}`}, "invalid value"},
		"too large":  {`"r/a:1": {}`, published{"r/a:1": strings.Repeat(" ", maxDescription+1)}, "larger than"},
	} {
		_, err := resolve(t, `{"image": "x", "features": {`+c.config+`}}`, c.registry)
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got %v, want Invalid with %q", name, err, c.text)
		}
	}
}

// Attack: a feature asks for rights, for files of the host, or for instructions of its own in the
// build.
func TestFeaturesAskForNothingBeyondTheSandbox(t *testing.T) {
	for property, text := range map[string]string{
		"privileged: ":                 `{"privileged": true}`,
		"capAdd: ":                     `{"capAdd": ["SYS_PTRACE"]}`,
		"securityOpt: ":                `{"securityOpt": ["seccomp=unconfined"]}`,
		"entrypoint: ":                 `{"entrypoint": "/start"}`,
		"surprise: ":                   `{"surprise": 1}`,
		"containerEnv: \"A B\"":        `{"containerEnv": {"A B": "x"}}`,
		"containerEnv: \"A\"":          `{"containerEnv": {"A": "x\"\nRUN evil"}}`,
		"option o: ":                   `{"options": {"o": {"type": "boolean", "default": "maybe"}}}`,
		"option p: ":                   `{"options": {"p": {"type": "string", "default": "z", "enum": ["x", "y"]}}}`,
		"mounts (/var/run/docker.sock": `{"mounts": [{"type": "bind", "source": "/var/run/docker.sock", "target": "/var/run/docker.sock"}]}`,
		"onCreateCommand: it reads":    `{"onCreateCommand": "echo ${localEnv:HOME}"}`,
		"neither a directory":          `{"dependsOn": {"r/x y": {}}}`,
	} {
		dir := workspace(t, `{"image": "x", "features": {"r/a:1": {}}}`)
		o := Options{Dir: dir, LookUp: func(string) (string, bool) { return "/root", true }, LocalEnv: []string{"HOME"}}
		plan, err := Make(o)
		if err != nil {
			t.Fatal(err)
		}
		err = plan.ResolveFeatures(t.Context(), o, published{"r/a:1": text}.find)
		if fault.CodeOf(err) != CodeUnsupported || !strings.Contains(err.Error(), property) || len(plan.Installs) > 0 {
			t.Errorf("ResolveFeatures of %s: got %v, want a problem with %q", text, err, property)
		}
	}
}

func TestFeatureBringsMountsAndCommands(t *testing.T) {
	plan, err := resolve(t, `{"image": "x", "features": {"r/a:1": {}}, "postCreateCommand": "own"}`, published{"r/a:1": `{
		"id": "a", "deprecated": true, "mounts": ["type=volume,source=x,target=/cache"], "init": true,
		"postCreateCommand": "theirs", "onCreateCommand": {"one": "1", "two": ["2"]}, "privileged": false
	}`})
	if err != nil {
		t.Fatal(err)
	}
	var titles []string
	for _, s := range plan.Stages {
		titles = append(titles, s.Title())
	}
	if want := []string{"onCreateCommand of r/a:1", "postCreateCommand of r/a:1", "postCreateCommand"}; !slices.Equal(titles, want) {
		t.Errorf("commands: got %q, want %q", titles, want)
	}
	if len(plan.Volumes) != 1 || len(plan.Notes) != 1 {
		t.Errorf("got volumes %v and notes %q, want one of each", plan.Volumes, plan.Notes)
	}
}

func TestImageFile(t *testing.T) {
	plan := Plan{User: "dev", Installs: []Install{
		{Reference: "r/a:1", Variables: []string{"V=$(evil) \"x\" <<EOF"}, Env: map[string]string{"P": `/a:${PATH}"\`, "A": "1"}},
		{Reference: "./local", Local: "/w/local"},
	}}
	got, err := plan.ImageFile("base:1", "70:71")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(got, "\n")
	want := []string{
		"FROM base:1", "USER root", "RUN --mount=type=bind,from=r/a:1,target=/tmp/crannog-feature [", `ENV A="1"`, `ENV P="/a:${PATH}\"\\"`,
		"RUN --mount=type=bind,source=feature-1,target=/tmp/crannog-feature [", "USER dev", "",
	}
	if len(lines) != len(want) {
		t.Fatalf("ImageFile: got %q, want %d lines", got, len(want))
	}
	for i := range want {
		if !strings.HasPrefix(lines[i], want[i]) {
			t.Errorf("line %d: got %q, want %q", i+1, lines[i], want[i])
		}
	}
	if !strings.Contains(lines[2], `"_REMOTE_USER=dev","_CONTAINER_USER=70","V=$(evil) \"x\"`) {
		t.Errorf("the variables are missing in %q", lines[2])
	}
}

// The workspace belongs to the image's user, so that another user needs an image of its own.
func TestUserNeedsOwnImage(t *testing.T) {
	for _, c := range []struct {
		remote, user string
		want         string
	}{
		{"", "app", ""}, {"root", "app", ""}, {"app", "app", ""}, {"", "", ""}, {"dev", "", "FROM base:1\nUSER dev\n"}, {"dev", "app", "FROM base:1\nUSER dev\n"},
	} {
		plan := Plan{User: c.remote}
		if got := plan.HasOwnImage(c.user); got != (c.want != "") {
			t.Errorf("remote user %q, image's user %q: own image: got %t", c.remote, c.user, got)
		}
		if got, err := plan.ImageFile("base:1", c.user); err != nil || c.want != "" && got != c.want {
			t.Errorf("remote user %q, image's user %q: got %q, %v, want %q", c.remote, c.user, got, err, c.want)
		}
	}
}

func TestOptionVariables(t *testing.T) {
	for name, want := range map[string]string{"version": "VERSION", "fast-mode": "FAST_MODE", "2nd": "_ND", "__x": "_X"} {
		if got := optionVariable(name); got != want {
			t.Errorf("optionVariable(%s) = %s, want %s", name, got, want)
		}
	}
}

// A link in the workspace does not show a description from elsewhere.
func TestLocalFeaturesStayInTheWorkspace(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "f.json"), []byte(`{"id": "x"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"file": true, "link": false, "missing": false} {
		dir := workspace(t, `{"image": "x", "features": {"./feature": {}}}`)
		if err := os.Mkdir(filepath.Join(dir, "feature"), 0o755); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "feature", "devcontainer-feature.json")
		var err error
		switch name {
		case "file":
			err = os.WriteFile(file, []byte(`{"id": "x"}`), 0o600)
		case "link":
			err = os.Symlink(filepath.Join(outside, "f.json"), file)
		}
		if err != nil {
			t.Fatal(err)
		}
		o := Options{Dir: dir, LookUp: none}
		plan, err := Make(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := plan.ResolveFeatures(t.Context(), o, published{}.find); (err == nil) != want || want && plan.Installs[0].Local != filepath.Join(dir, "feature") {
			t.Errorf("%s: got %+v, %v, want success: %t", name, plan.Installs, err, want)
		}
	}
}

// No description makes the plan fail in another way than by an error, or changes the build's file.
func FuzzFeatureDescription(f *testing.F) {
	f.Add(`{"id": "a", "options": {"x": {"type": "string", "default": "y"}}, "containerEnv": {"A": "b"}}`)
	f.Add(`{"mounts": ["type=volume,source=a,target=/b"], "dependsOn": {"r/a:1": true}}`)
	f.Fuzz(func(t *testing.T, text string) {
		p := &planner{options: Options{Dir: "/w", LookUp: none}, plan: Plan{Folder: "/w"}}
		d, err := p.describe("f", []byte(text))
		if err != nil || len(p.problems) > 0 {
			return
		}
		variables := p.optionVariables("f", d, nil)
		plan := Plan{Installs: []Install{{Reference: "r/a:1", Variables: variables, Env: d.ContainerEnv}}}
		file, err := plan.ImageFile("x", "")
		if err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(file, "\n"); lines != 2+len(slices.Collect(maps.Keys(d.ContainerEnv))) {
			t.Errorf("the file has %d lines:\n%s", lines, file)
		}
	})
}
