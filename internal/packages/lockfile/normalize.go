package lockfile

import (
	"strings"

	"github.com/crannog/crannog/internal/host/pattern"
	"github.com/crannog/crannog/internal/packages"
)

// goModSuffix is the ending of the version of a go.mod in go.sum.
const goModSuffix = "/go.mod"

var (
	separators = pattern.New(`[-_.]+`)
	// pythonVersion is a version of PEP 440, in all its spellings.
	pythonVersion = pattern.New(`^v?(?:([0-9]+)!)?([0-9]+(?:\.[0-9]+)*)` +
		`(?:[-_.]?(alpha|beta|preview|pre|a|b|c|rc)[-_.]?([0-9]*))?` +
		`(?:-([0-9]+)|[-_.]?(post|rev|r)[-_.]?([0-9]*))?` +
		`(?:[-_.]?(dev)[-_.]?([0-9]*))?` +
		`(?:\+([a-z0-9]+(?:[-_.][a-z0-9]+)*))?$`)
	prePhases = map[string]string{"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "preview": "rc"}
)

// Name returns the name of a package in the form in which it is compared: that of PEP 503 for
// Python, and in lower case for Rust, because paths of the index are.
func Name(e packages.Ecosystem, name string) string {
	switch e {
	case packages.PyPI:
		return packages.PythonName(name)
	case packages.Crates:
		return strings.ToLower(name)
	default:
		return name
	}
}

// Version returns a version in the form in which it is compared. Python has several spellings of
// one version, and names of files have another one than lockfiles.
func Version(e packages.Ecosystem, version string) string {
	if e != packages.PyPI {
		return version
	}
	version = strings.ToLower(strings.TrimSpace(version))
	if len(version) > maxField {
		return version
	}
	m := pythonVersion.Regexp().FindStringSubmatch(version)
	if m == nil {
		return version
	}
	var out strings.Builder
	if epoch := number(m[1]); epoch != "0" {
		out.WriteString(epoch + "!")
	}
	parts := strings.Split(m[2], ".")
	for len(parts) > 1 && number(parts[len(parts)-1]) == "0" {
		parts = parts[:len(parts)-1] // 1.0 and 1.0.0 are one version
	}
	for i, p := range parts {
		parts[i] = number(p)
	}
	out.WriteString(strings.Join(parts, "."))
	if phase := m[3]; phase != "" {
		if short := prePhases[phase]; short != "" {
			phase = short
		}
		out.WriteString(phase + number(m[4]))
	}
	switch {
	case m[5] != "":
		out.WriteString(".post" + number(m[5]))
	case m[6] != "":
		out.WriteString(".post" + number(m[7]))
	}
	if m[8] != "" {
		out.WriteString(".dev" + number(m[9]))
	}
	if m[10] != "" {
		out.WriteString("+" + separators.Regexp().ReplaceAllString(m[10], "."))
	}
	return out.String()
}

// number returns a decimal number without leading zeros. An absent one is zero.
func number(s string) string {
	if s = strings.TrimLeft(s, "0"); s == "" {
		return "0"
	}
	return s
}
