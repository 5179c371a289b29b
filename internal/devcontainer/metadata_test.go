package devcontainer

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/fault"
)

// addLabel makes the plan of a configuration and adds a label of its image.
func addLabel(t *testing.T, config, label string) (Plan, error) {
	t.Helper()
	o := Options{Dir: workspace(t, config), LookUp: func(string) (string, bool) { return "secret", true }}
	plan, err := Make(o)
	if err != nil {
		t.Fatal(err)
	}
	return plan, plan.AddMetadata(o, "r/x:1", label)
}

// The configuration has precedence over the label, and later entries of the label over earlier ones.
func TestMetadataIsMerged(t *testing.T) {
	plan, err := addLabel(t, `{
		"image": "x", "containerEnv": {"B": "file"}, "containerUser": "one", "forwardPorts": [3000], "portsAttributes": {"3000": {"label": "file"}},
		"mounts": ["source=own,target=/cache,type=volume"], "postCreateCommand": "file"
	}`, `[
		{"id": "r/node:1", "containerEnv": {"A": "1", "B": "1", "C": "1"}, "remoteEnv": {"P": "${containerEnv:PATH}:/n"}, "postCreateCommand": "first", "onCreateCommand": ["a", "b"],
			"mounts": ["source=theirs,target=/cache,type=volume", {"source": "old-${devcontainerId}", "target": "/data", "type": "volume"}], "customizations": {"vscode": {}}, "init": true},
		{"remoteUser": "two", "containerEnv": {"C": "2"}, "forwardPorts": [3000, 8080], "portsAttributes": {"3000": {"label": "image"}, "8080": {"label": "web"}}, "postCreateCommand": "second",
			"mounts": ["source=new,target=/data,type=volume"], "remoteEnv": {"GONE": null}},
		{"containerUser": "three", "userEnvProbe": "none", "privileged": false, "capAdd": [], "newProperty": 1}
	]`)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(map[string]any{"env": plan.ContainerEnv, "remote": plan.RemoteEnv, "user": plan.User, "ports": plan.Ports, "attributes": plan.PortAttributes, "stages": plan.Stages})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"env":{"A":"1","B":"file","C":"2"}`, `"remote":{"GONE":null,"P":"${containerEnv:PATH}:/n"}`, `"user":"two"`, `"ports":[3000,8080]`, `"attributes":{"3000":{"label":"file"},"8080":{"label":"web"}}`,
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("the plan has no %s: %s", want, got)
		}
	}
	var commands []string
	for _, s := range plan.Stages {
		commands = append(commands, s.Title())
	}
	if want := []string{
		"onCreateCommand of r/node:1, entry 1 of the image", "postCreateCommand of r/node:1, entry 1 of the image", "postCreateCommand of entry 2 of the image", "postCreateCommand",
	}; !slices.Equal(commands, want) {
		t.Errorf("commands: got %q, want %q", commands, want)
	}
	var volumes []string
	for _, v := range plan.Volumes {
		volumes = append(volumes, v.Name[strings.LastIndex(v.Name, "-")+1:]+" at "+v.Target)
	}
	slices.Sort(volumes)
	if want := []string{"new at /data", "own at /cache"}; !slices.Equal(volumes, want) {
		t.Errorf("volumes: got %q, want %q", volumes, want)
	}
	if len(plan.Notes) != 1 || !strings.Contains(plan.Notes[0], `"newProperty"`) {
		t.Errorf("notes: got %q, want one about newProperty", plan.Notes)
	}
}

func TestMetadataChoosesUser(t *testing.T) {
	for title, c := range map[string]struct{ config, label, want string }{
		"remoteUser of the file":                             {`{"image": "x", "remoteUser": "file"}`, `{"remoteUser": "image"}`, "file"},
		"remoteUser of the image before the file's other":    {`{"image": "x", "containerUser": "file"}`, `{"remoteUser": "image"}`, "image"},
		"containerUser of the file before that of the image": {`{"image": "x", "containerUser": "file"}`, `[{"containerUser": "image"}]`, "file"},
		"containerUser of the image":                         {`{"image": "x"}`, `[{"containerUser": "image"}]`, "image"},
		"none":                                               {`{"image": "x"}`, `[]`, ""},
	} {
		if plan, err := addLabel(t, c.config, c.label); err != nil || plan.User != c.want {
			t.Errorf("%s: got %q, error %v, want %q", title, plan.User, err, c.want)
		}
	}
}

// An image is no more trusted than the file of a repository.
func TestMetadataIsRefused(t *testing.T) {
	plan, err := addLabel(t, `{"image": "x", "remoteUser": "me"}`, `[{}, {
		"privileged": true, "capAdd": ["SYS_PTRACE"], "securityOpt": ["seccomp=unconfined"], "entrypoint": "/start", "overrideCommand": false, "runArgs": [],
		"mounts": ["source=/var/run/docker.sock,target=/var/run/docker.sock,type=bind"], "forwardPorts": ["db:5432"], "containerEnv": {"K": "${localEnv:KEY}", "A=B": ""},
		"postCreateCommand": "echo ${localEnv:KEY}"
	}]`)
	if fault.CodeOf(err) != CodeUnsupported {
		t.Fatalf("AddMetadata: got %v, want %s", err, CodeUnsupported)
	}
	for _, want := range []string{
		"devcontainer.metadata of r/x:1", "entry 2: privileged:", "entry 2: capAdd:", "entry 2: securityOpt:", "entry 2: entrypoint:", "entry 2: overrideCommand:",
		"entry 2, mounts (/var/run/docker.sock):", "forwardPorts:", "entry 2: containerEnv: it reads the variable KEY", "entry 2: postCreateCommand: it reads the variable KEY", `"A=B" is not the name`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %q: %v", want, err)
		}
	}
	if len(plan.ContainerEnv) > 0 || len(plan.Mounts) > 0 || len(plan.Stages) > 0 || plan.User != "me" {
		t.Errorf("a refused label changed the plan: %+v", plan)
	}
	for _, user := range []string{`a\nRUN evil`, "a b", "$X", `a\\`, `a\u0000`} {
		if _, err := addLabel(t, `{"image": "x"}`, `{"remoteUser": "`+user+`"}`); fault.CodeOf(err) != CodeUnsupported {
			t.Errorf("the user %q of the label: got %v, want %s", user, err, CodeUnsupported)
		}
		if _, err := Make(Options{Dir: workspace(t, `{"image": "x", "remoteUser": "`+user+`"}`), LookUp: none}); fault.CodeOf(err) != CodeUnsupported {
			t.Errorf("the user %q of the file: got %v, want %s", user, err, CodeUnsupported)
		}
	}
	for title, label := range map[string]string{
		"no JSON":                   "{",
		"a text":                    `"x"`,
		"a list of texts":           `["x"]`,
		"a variable that is a list": `{"containerEnv": {"A": []}}`,
		"too many entries":          "[" + strings.Repeat("{},", maxEntries) + "{}]",
		"too many bytes":            `[{"id": "` + strings.Repeat("x", maxMetadata) + `"}]`,
	} {
		if _, err := addLabel(t, `{"image": "x"}`, label); fault.CodeOf(err) != CodeInvalid {
			t.Errorf("%s: got %v, want %s", title, err, CodeInvalid)
		}
	}
}

// FuzzAddMetadata checks that no label of an image ends the program.
func FuzzAddMetadata(f *testing.F) {
	for _, label := range []string{"[]", "{}", "null", "[null]", `[{"mounts": ["type=volume,source=a,target=/a"], "forwardPorts": [1], "portsAttributes": {"1-": {}}, "postCreateCommand": {"a": ["b"]}}]`} {
		f.Add(label)
	}
	f.Fuzz(func(t *testing.T, label string) {
		plan, err := addLabel(t, `{"image": "x"}`, label)
		if err == nil && slices.ContainsFunc(plan.Ports, func(p int) bool { return p < 1 || p > 65535 }) {
			t.Errorf("ports of %q: got %v", label, plan.Ports)
		}
	})
}
