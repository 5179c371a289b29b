package rootfs

import (
	"maps"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/offline"
	"github.com/crannog/crannog/internal/sandbox"
)

// Compose returns the specification for the engine and the guest, and the search for keys in the
// workspace, which may be nil. It records in the row which checks the guest will make.
func Compose(r *sandbox.Row, t sandbox.Template, p *policy.Policy, info engine.Info) (engine.Spec, guest.Config, *KeySearch, error) {
	masks, err := pathMasks(r.Workspace, r.Base, p)
	if err == nil {
		err = checkFileRules(t.Image, p.Files(), info)
	}
	if err == nil {
		err = masks.maskPrograms(t.Image, p.Files().Matcher())
	}
	if err == nil {
		err = masks.maskTools(t.Tools, p.Files().Matcher())
	}
	if err == nil && r.Boundary != engine.NoBoundary {
		// The guest's own files are read-only for every user inside, so that no program can change
		// the code that inspects the sandbox. They also give each sandbox a read-only path for the
		// inspection's attempt to write.
		masks.readOnly = append([]string{t.Image.Guest}, masks.readOnly...)
		err = masks.maskTree(t.Image, p.Files())
	}
	if err != nil {
		return engine.Spec{}, guest.Config{}, nil, err
	}
	masks.hideBelowReadOnly()
	if n := t.Origin; n != nil && !n.FilesOnly {
		masks.continueMemory(n.Base, p.Files().Matcher())
	}
	var search *KeySearch
	if r.Workspace != "" {
		search = &KeySearch{workspace: r.Workspace, files: masks.files}
	}
	spec, config := ComposeMasked(r, t, p, info, masks, hasWriteList(p.Files()), r.Hostname())
	for _, f := range firstPaths(masks.absent) {
		r.Checked = append(r.Checked, f+" is not there")
	}
	if r.ShowsHost() && p.Files().Workspace == workspaceCopy && r.Base.Copy == "" {
		r.Base.Copy = r.ID
	}
	return spec, config, search, nil
}

// ComposeMasked is Compose with given path masks. It records the instance's base.
func ComposeMasked(r *sandbox.Row, t sandbox.Template, p *policy.Policy, info engine.Info, masks Masks, noRoot bool, hostname string) (engine.Spec, guest.Config) {
	r.Base = sandbox.Base{
		Image: t.Image, Hide: masks.hide, Absent: masks.absent, ReadOnly: masks.readOnly, NoRoot: noRoot,
		Repos: masks.repos, Tools: t.Tools,
		Env: t.Env, DefaultUser: t.DefaultUser, DefaultDir: t.DefaultDir, Revision: t.Revision, ImageDigest: t.ImageDigest, Start: t.Start,
		Knows: sandbox.GuestKnows - t.Older, Saves: sandbox.SavedBy(info), Containers: r.Base.Containers, Unseen: r.Base.Unseen,
	}.WithMountsOf(r.Base)
	config := guestConfig(*r, t, hostname)
	config.NoRoot, config.OneUser = noRoot || info.NoRoot, info.NoRoot
	if info.NoRoot || noRoot && isRoot(config.DefaultUser) {
		// Most images name no user, which means root. Crannog adds the account "user" to each of
		// them, which is also the only one on an engine without root.
		config.DefaultUser = defaultUser
	}
	config.Absent = masks.absent
	config.Skip = masks.skips()
	config.Tools = guestTools(t.Tools)
	config.Checks, r.Checked = checks(*r, p, masks, info)
	if r.Access.Linked() {
		r.Base.Attachment = info.Attachment()
	}
	config.HostMemory = r.Boundary != engine.NoBoundary && !slices.Contains(info.Shows, engine.LimitMemory)
	config.HostFiles = !info.OwnFiles
	if !r.Access.Linked() && info.OwnNetwork && info.OwnFiles {
		config.Offline = true
		config.Files = []guest.File{{Path: "/etc/resolv.conf", Mode: 0o644, Data: []byte(offline.ResolvConf)}}
	}
	return engine.Spec{
		ID: r.ID, Hostname: hostname, Image: t.Image,
		Mounts: r.Base.HostBinds(), Links: r.Base.Links,
		SetID:          t.Image.View().Owners != "" && !noRoot && info.OwnRoot,
		TakesWorkspace: r.Base.TakesWorkspace, Containers: r.Base.Containers,
		Limits: r.Limits.Limits, Hide: masks.hide, Absent: masks.absent, ReadOnly: masks.readOnly,
	}, config
}

// AddEnv adds variables that are not set yet.
func AddEnv(env, more map[string]string) {
	for name, value := range more {
		if _, set := env[name]; !set {
			env[name] = value
		}
	}
}

// defaultUser is the account that owns a workspace.
const defaultUser = "user"

// isRoot reports whether the user of an image, NAME[:GROUP] or numbers, is root.
func isRoot(user string) bool {
	name, _, _ := strings.Cut(user, ":")
	return name == "root" || name == "0"
}

func guestConfig(r sandbox.Row, t sandbox.Template, hostname string) guest.Config {
	c := guest.Config{
		SandboxID: r.ID, TemplateID: r.TemplateID, Hostname: hostname,
		AccessToken: r.AccessToken, ControlToken: r.ControlToken,
		Env:         make(map[string]string, len(t.Env)+len(r.Env)+3),
		DefaultUser: t.DefaultUser, DefaultDir: t.DefaultDir,
		CommandTimeout: r.Limits.CommandTimeout, EndAt: r.GuestEnd(),
		MemoryBytes: r.Limits.MemoryBytes, MilliCPU: r.Limits.MilliCPU,
		DiskBytes: r.Limits.DiskBytes, PIDs: r.Limits.PIDs,
	}
	if c.DefaultUser == "" {
		c.DefaultUser = defaultUser
	}
	if r.Workspace != "" {
		c.DefaultDir = "/workspace"
	}
	for _, env := range []map[string]string{t.Env, r.Env, {
		// This comes last, so that the description of the sandbox that programs inside can read is
		// accurate.
		"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": r.ID, "E2B_TEMPLATE_ID": r.TemplateID,
	}} {
		maps.Copy(c.Env, env)
	}
	return c
}
