package template

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// npmConfigs are the paths of the host's npm configuration for all users: beside its installation
// prefix, or in /etc.
var npmConfigs = []string{"/usr/etc/npmrc", "/usr/local/etc/npmrc", "/etc/npmrc"}

// npmConfig returns the sandbox's npm configuration for all users. Global packages are installed in
// the user's home, because /usr belongs to root. The registries of the host's configuration are
// included.
func npmConfig(root string) []byte {
	text := []byte("prefix=${HOME}/.local\nupdate-notifier=false\n")
	for _, name := range npmConfigs {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			continue // it does not exist, or not every user may read it
		}
		for line := range strings.Lines(string(data)) {
			key, value, ok := strings.Cut(line, "=")
			key, value = strings.TrimSpace(key), strings.TrimSpace(value)
			if ok && npmSettingAllowed(key, value) {
				text = append(text, key+"="+value+"\n"...)
			}
		}
		break
	}
	return text
}

// npmSettingAllowed reports whether a setting of the host's npm may be shown in a sandbox: a
// registry without credentials in its URL, or the path of a list of certificate authorities.
// Tokens, passwords and client keys are not allowed.
func npmSettingAllowed(key, value string) bool {
	switch {
	case key == "registry", strings.HasPrefix(key, "@") && strings.HasSuffix(key, ":registry"):
		u, err := url.Parse(strings.Trim(value, `"'`))
		return err == nil && u.Host != "" && u.User == nil && u.RawQuery == ""
	case key == "cafile":
		return true
	}
	return false
}
