package sbom

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// fields returns the fields of a paragraph of "Name: value" lines. Continuation lines are left out.
func fields(paragraph string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(paragraph) {
		if name, value, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "\t") {
			if _, twice := out[name]; !twice {
				out[name] = strings.TrimSpace(value)
			}
		}
	}
	return out
}

// paragraphs returns the parts of a text between empty lines.
func paragraphs(data []byte) []string {
	return strings.Split(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n\n")
}

// parseDpkg parses dpkg's list of packages. Removed packages whose configuration is left are not
// installed. The lists of distroless images have no status.
func parseDpkg(data []byte) (list []Package, err error) {
	for _, p := range paragraphs(data) {
		f := fields(p)
		if status, ok := f["Status"]; f["Package"] != "" && (!ok || strings.HasSuffix(status, " installed")) {
			list = append(list, Package{Kind: Deb, Name: f["Package"], Version: f["Version"], Arch: f["Architecture"]})
		}
	}
	return list, nil
}

// parseApk parses apk's list of packages.
func parseApk(data []byte) (list []Package, err error) {
	for _, p := range paragraphs(data) {
		if f := fields(p); f["P"] != "" {
			list = append(list, Package{Kind: Apk, Name: f["P"], Version: f["V"], Arch: f["A"]})
		}
	}
	return list, nil
}

// parseNPM parses the package.json of an installed module.
func parseNPM(data []byte) ([]Package, error) {
	var p struct{ Name, Version string }
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, err
	}
	if p.Name == "" || p.Version == "" {
		return nil, nil // modules contain such files for their own directories
	}
	return []Package{{Kind: NPM, Name: p.Name, Version: p.Version}}, nil
}

// parsePython parses the metadata of an installed distribution.
func parsePython(data []byte) ([]Package, error) {
	f := fields(paragraphs(data)[0])
	if f["Name"] == "" {
		return nil, errors.New("the metadata has no name")
	}
	return []Package{{Kind: PyPI, Name: f["Name"], Version: f["Version"]}}, nil
}

// parseGo returns the modules of a Go program. debug/elf is not made for hostile files, so that a
// panic in it counts as an error.
func parseGo(data []byte) (list []Package, err error) {
	defer func() {
		if p := recover(); p != nil {
			list, err = nil, fmt.Errorf("the program cannot be read: %v", p)
		}
	}()
	info, err := buildinfo.Read(bytes.NewReader(data))
	if err != nil {
		return nil, nil //nolint:nilerr // most programs are not written in Go
	}
	list = append(list, Package{Kind: Golang, Name: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")})
	if info.Main.Path != "" {
		list = append(list, Package{Kind: Golang, Name: info.Main.Path, Version: info.Main.Version})
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		list = append(list, Package{Kind: Golang, Name: m.Path, Version: m.Version})
	}
	return list, nil
}
