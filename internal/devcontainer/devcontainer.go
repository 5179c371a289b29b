// Package devcontainer owns the meaning of devcontainer.json: where the file is, what it asks for,
// what of it Crannog supports, and the steps that make a sandbox from it. The file comes with a
// repository and is untrusted: it never chooses what a sandbox may see of the host or reach.
package devcontainer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/tailscale/hujson"

	"github.com/crannog/crannog/internal/fault"
)

// maxFile bounds the file. The largest ones in public repositories have a few kilobytes.
const maxFile = 256 << 10

// Codes of errors.
const (
	CodeMissing     = "devcontainer_not_found"
	CodeInvalid     = "devcontainer_invalid"
	CodeUnsupported = "devcontainer_unsupported"
)

// Find returns the path of the configuration in a workspace, relative to the workspace. A
// non-empty name chooses .devcontainer/NAME/devcontainer.json.
func Find(root *os.Root, name string) (string, error) {
	if name != "" {
		if strings.ContainsAny(name, "/\\") || name == "." || name == ".." {
			return "", fault.Newf(fault.Invalid, CodeInvalid, "%q is not the name of a directory in .devcontainer", name)
		}
		return exists(root, path.Join(".devcontainer", name, "devcontainer.json"))
	}
	for _, file := range []string{".devcontainer/devcontainer.json", ".devcontainer.json"} {
		if found, err := exists(root, file); err == nil || fault.KindOf(err) != fault.NotFound {
			return found, err
		}
	}
	dir, err := root.Open(".devcontainer")
	if err != nil {
		return "", absent()
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return "", fmt.Errorf("read .devcontainer: %w", err)
	}
	var found, names []string
	for _, e := range entries {
		if file, err := exists(root, path.Join(".devcontainer", e.Name(), "devcontainer.json")); err == nil {
			found, names = append(found, file), append(names, e.Name())
		}
	}
	switch len(found) {
	case 0:
		return "", absent()
	case 1:
		return found[0], nil
	}
	slices.Sort(names)
	return "", fault.Newf(fault.Invalid, CodeInvalid, "there are %d configurations in .devcontainer: %s", len(names), strings.Join(names, ", ")).
		WithHint("choose one with --config NAME")
}

func absent() error {
	return fault.New(fault.NotFound, CodeMissing, "there is no .devcontainer/devcontainer.json, .devcontainer.json or .devcontainer/NAME/devcontainer.json")
}

func exists(root *os.Root, file string) (string, error) {
	switch info, err := root.Stat(file); {
	case errors.Is(err, fs.ErrNotExist):
		return "", fault.Newf(fault.NotFound, CodeMissing, "there is no %s", file)
	case err != nil:
		// os.Root refuses a link that leads out of the workspace.
		return "", fault.Newf(fault.Invalid, CodeInvalid, "%s cannot be opened: %v", file, err)
	case !info.Mode().IsRegular():
		return "", fault.Newf(fault.Invalid, CodeInvalid, "%s is not a regular file", file)
	}
	return file, nil
}

// Read reads the configuration that Find found.
func Read(root *os.Root, file string) ([]byte, error) {
	f, err := root.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fault.Newf(fault.Invalid, CodeInvalid, "%s is larger than %d bytes", file, maxFile)
	}
	return data, err
}

// Config is a devcontainer.json whose variables are replaced. Properties that are only refused or
// ignored are not in it.
type Config struct {
	Name  string `json:"name"`
	Image string `json:"image"`
	Build *Build `json:"build"`
	// DockerFile and Context are the earlier names of the properties of build.
	DockerFile      string                    `json:"dockerFile"`
	Context         string                    `json:"context"`
	ContainerEnv    map[string]string         `json:"containerEnv"`
	RemoteEnv       map[string]*string        `json:"remoteEnv"`
	ContainerUser   string                    `json:"containerUser"`
	RemoteUser      string                    `json:"remoteUser"`
	WorkspaceFolder string                    `json:"workspaceFolder"`
	WorkspaceMount  *string                   `json:"workspaceMount"`
	Mounts          []Mount                   `json:"mounts"`
	ForwardPorts    []json.RawMessage         `json:"forwardPorts"`
	AppPort         json.RawMessage           `json:"appPort"`
	PortsAttributes map[string]PortAttributes `json:"portsAttributes"`
	OtherPorts      PortAttributes            `json:"otherPortsAttributes"`
	Features        map[string]Settings       `json:"features"`
	FeatureOrder    []string                  `json:"overrideFeatureInstallOrder"`
	lifecycle
}

// Build describes the image to build.
type Build struct {
	Dockerfile string            `json:"dockerfile"`
	Context    string            `json:"context"`
	Args       map[string]string `json:"args"`
	Target     string            `json:"target"`
}

// parse returns the properties of a file: JSON with comments and trailing commas.
func parse(data []byte) (map[string]any, error) {
	plain, err := hujson.Standardize(data)
	if err != nil {
		return nil, fault.Newf(fault.Invalid, CodeInvalid, "it is not JSON with comments: %v", err)
	}
	var all map[string]any
	if err := json.Unmarshal(plain, &all); err != nil {
		return nil, fault.Newf(fault.Invalid, CodeInvalid, "it is not a JSON object: %v", err)
	}
	if all == nil {
		return nil, fault.New(fault.Invalid, CodeInvalid, "it is not a JSON object: it is null")
	}
	return all, nil
}

// decode turns properties whose variables are replaced into a Config.
func decode(all map[string]any) (c Config, err error) {
	data, err := json.Marshal(all)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fault.Newf(fault.Invalid, CodeInvalid, "a property has an invalid value: %v", err)
	}
	return c, nil
}
