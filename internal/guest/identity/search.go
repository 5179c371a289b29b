package identity

import (
	"path"
	"strings"
)

// homePrograms are the directories below a home in which pip, npm, pipx, uv, gem, go install and
// cargo install put a user's commands.
var homePrograms = []string{".local/bin", "go/bin", ".cargo/bin"}

// SearchPath returns a PATH with the home's program directories before those of the system, so that
// a newly installed command is found, even one that replaces a system command.
func SearchPath(home, system string) string {
	if home == "" || home == "/" {
		return system // the account has no home
	}
	var dirs []string
	for _, dir := range homePrograms {
		dirs = append(dirs, path.Join(home, dir))
	}
	return strings.Join(append(dirs, system), ":")
}
