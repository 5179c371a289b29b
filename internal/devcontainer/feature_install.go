package devcontainer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// featureMount is where a build shows the files of a feature.
const featureMount = "/tmp/crannog-feature"

// installScript runs the installation script of a feature in a copy of its files, with the
// variables that are its arguments. It works in images that have only a shell and coreutils.
const installScript = `set -e
for pair do export "$pair"; done
home() {
	while IFS=: read -r name _ _ _ _ dir _; do
		if [ "$name" = "$1" ]; then echo "$dir"; return; fi
	done < /etc/passwd
}
export _REMOTE_USER_HOME="$(home "$_REMOTE_USER")" _CONTAINER_USER_HOME="$(home "$_CONTAINER_USER")"
dir=$(mktemp -d)
cp -R ` + featureMount + `/. "$dir"
cd "$dir"
if [ ! -f install.sh ]; then echo "the feature has no install.sh" >&2; exit 1; fi
chmod +x install.sh
./install.sh
cd /
rm -rf "$dir"
`

// LocalName is the directory in the build's context that has the files of a feature of the
// workspace, which is the i-th one of the plan.
func LocalName(i int) string { return fmt.Sprintf("feature-%d", i) }

// HasOwnImage reports whether the plan needs an image of its own, instead of one whose user is user:
// for its features, or because the workspace belongs to the image's user.
func (plan *Plan) HasOwnImage(user string) bool {
	return len(plan.Installs) > 0 || plan.lastUser(user) != user
}

// lastUser returns the user of the plan's own image. Root can write to the workspace anyway.
func (plan *Plan) lastUser(user string) string {
	if plan.User == "" || plan.User == "root" {
		return user
	}
	return plan.User
}

// ImageFile returns the Dockerfile of the plan's own image, which installs the features. user is
// the user of the image that it starts from, or "".
func (plan *Plan) ImageFile(image, user string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "FROM %s\n", image)
	account, _, _ := strings.Cut(user, ":")
	if account == "" {
		account = "root"
	}
	remote := plan.User
	if remote == "" {
		remote = account
	}
	if user != "" && len(plan.Installs) > 0 {
		b.WriteString("USER root\n")
	}
	for i, f := range plan.Installs {
		from := "from=" + cmp.Or(f.Source, f.Reference)
		if f.Local != "" {
			from = "source=" + LocalName(i)
		}
		args := append([]string{"/bin/sh", "-c", installScript, "sh", "_REMOTE_USER=" + remote, "_CONTAINER_USER=" + account}, f.Variables...)
		// No shell of the build reads this form, and every line break in it is escaped.
		text, err := json.Marshal(args)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "RUN --mount=type=bind,%s,target=%s %s\n", from, featureMount, text)
		for _, name := range slices.Sorted(maps.Keys(f.Env)) {
			// References to other variables are replaced, as the specification says.
			fmt.Fprintf(&b, "ENV %s=\"%s\"\n", name, strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(f.Env[name]))
		}
	}
	if last := plan.lastUser(user); last != "" {
		fmt.Fprintf(&b, "USER %s\n", last)
	}
	return b.String(), nil
}
