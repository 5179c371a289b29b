// Package sysctl owns the settings of the host's kernel that can prevent sandboxes.
package sysctl

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Dir is a directory with the settings of a kernel, one file for each.
type Dir string

// Host has those of the host's kernel.
const Host Dir = "/proc/sys"

// The settings that can prevent sandboxes.
const (
	MaxUserNamespaces    = "user.max_user_namespaces"
	UserNamespacesClone  = "kernel.unprivileged_userns_clone"
	AppArmorRestrictions = "kernel.apparmor_restrict_unprivileged_userns"
	PtraceScope          = "kernel.yama.ptrace_scope"
)

// Is reports whether a setting exists and is one of the values. A kernel without the setting does
// not have the restriction either.
func (d Dir) Is(name string, bad func(int64) bool) bool {
	data, err := os.ReadFile(filepath.Join(string(d), strings.ReplaceAll(name, ".", "/")))
	if err != nil {
		return false
	}
	value, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return err == nil && bad(value)
}

// Denial is a setting that denies user namespaces.
type Denial struct {
	Name string
	// Allows is a value that allows them.
	Allows string
	// Users is set if the setting does not concern root.
	Users bool
	// Also is another remedy, or "".
	Also string
}

// Fix returns what to do about the setting.
func (d Denial) Fix() string {
	fix := "sudo sysctl " + d.Name + "=" + d.Allows
	if d.Also != "" {
		fix += ", or " + d.Also
	}
	return fix
}

// denials lists the settings that can deny user namespaces.
var denials = []struct {
	Denial
	bad func(int64) bool
}{
	{Denial{Name: MaxUserNamespaces, Allows: "10000"}, zero},
	{Denial{Name: UserNamespacesClone, Allows: "1", Users: true}, zero},
	{Denial{Name: AppArmorRestrictions, Allows: "0", Users: true, Also: "an AppArmor profile for crannog with the rule userns"}, nonZero},
}

func zero(value int64) bool    { return value == 0 }
func nonZero(value int64) bool { return value != 0 }

// Denials lists the settings that deny user namespaces, to root or to a user.
func (d Dir) Denials(root bool) (list []Denial) {
	for _, one := range denials {
		if d.Is(one.Name, one.bad) && (!root || !one.Users) {
			list = append(list, one.Denial)
		}
	}
	return list
}
