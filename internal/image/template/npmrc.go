package template

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// npmConfigs are where the npm of a host has its configuration for all users: beside the prefix
// that it is installed in, or in /etc.
var npmConfigs = []string{"/usr/etc/npmrc", "/usr/local/etc/npmrc", "/etc/npmrc"}

// npmConfig is the sandbox's configuration of npm for all users. Global packages go to the user's
// home, as /usr is root's. Of the host's it keeps where packages come from.
func npmConfig(root string) []byte {
	text := []byte("prefix=${HOME}/.local\nupdate-notifier=false\n")
	for _, name := range npmConfigs {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			continue // it is not there, or is not for everybody to read
		}
		for line := range strings.Lines(string(data)) {
			key, value, ok := strings.Cut(line, "=")
			key, value = strings.TrimSpace(key), strings.TrimSpace(value)
			if ok && kept(key, value) {
				text = append(text, key+"="+value+"\n"...)
			}
		}
		break
	}
	return text
}

// kept reports whether a setting of the host's npm may be seen inside. Tokens, passwords and client
// keys may not, and are not: only registries without credentials in their address are, and the
// path of a list of authorities.
func kept(key, value string) bool {
	switch {
	case key == "registry", strings.HasPrefix(key, "@") && strings.HasSuffix(key, ":registry"):
		u, err := url.Parse(strings.Trim(value, `"'`))
		return err == nil && u.Host != "" && u.User == nil && u.RawQuery == ""
	case key == "cafile":
		return true
	}
	return false
}
