package enginetest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/filetree/fileowners"
	"github.com/crannog/crannog/internal/guest"
)

// imageOwnersRules check the owners that the files of an image have in the sandbox.
var imageOwnersRules = []rule{
	{"imageowners/are-those-of-the-table", imageOwnersFollowTable},
	{"imageowners/hold-in-a-copy", imageOwnersHoldInACopy},
}

// withOwners gives the tested image a table of owners. /usr is the host's, so the owners can only
// come from the table.
func withOwners(t testing.TB, c *Config, table fileowners.Table) func(*engine.Spec) {
	t.Helper()
	data, err := table.Text()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "owners")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	view := c.Image.View()
	view.Owners = file
	image := c.Image
	image.HostView = &view
	return func(s *engine.Spec) { s.Image = image }
}

// usrOwners is a table with set-id programs, and with directories whose files have the directory's
// owner.
var usrOwners = fileowners.Table{
	"/usr/bin/id": {SetID: 0o4000}, "/usr/bin/env": {UID: 7, GID: 8, SetID: 0o6000}, "/usr/bin/true": {UID: 9, GID: 10},
	"/usr/share": {UID: 11, GID: 12, SetID: 0o2000}, "/usr/share/doc": {},
}

// imageOwnersFollowTable checks the owners and set-id bits of files, and the effect of these bits.
func imageOwnersFollowTable(t testing.TB, c *Config) {
	e, table := c.Open(t, t.TempDir()), withOwners(t, c, usrOwners)
	const listOwners = statOwner + "/usr/bin/id /usr/bin/env /usr/bin/true /usr/share /usr/share/doc /usr/share/perl5"
	const want = "0:0 4755\n7:8 6755\n9:10 755\n11:12 2755\n0:0 755\n11:12 755"
	b := c.start(t, e, table, func(s *engine.Spec) { s.SetID = true })
	b.want(t, listOwners, want)
	// A set-id program of root gives its user the rights of root in the sandbox, and no more.
	b.want(t, "id -u; env id -u; true; cp /usr/bin/id /tmp/id; /tmp/id -u", "0\n0\n1000")
	asRoot := b.shAs(t, "root", "grep CapPrm /proc/self/status")
	b.want(t, "grep CapBnd /proc/self/status | cut -f2", asRoot.stdout[len("CapPrm:\t"):len(asRoot.stdout)-1])
	// A set-id bit that root in the sandbox sets on a program works too.
	if r := b.shAs(t, "root", "cp /usr/bin/id /usr/local/bin/mine && chmod 4755 /usr/local/bin/mine && chown 7:8 /usr/bin/true && "+statOwner+"/usr/bin/true"); r.stdout != "7:8 755\n" {
		t.Errorf("root: %+v", r)
	}
	b.want(t, "/usr/local/bin/mine -u", "0")

	// Without the permission, the bits are visible and have no effect.
	b = c.start(t, e, table)
	b.want(t, listOwners, want)
	b.want(t, "id -u; env id -u; grep NoNewPrivs /proc/self/status | cut -f2", "1000\n1000\n1")
}

// imageOwnersHoldInACopy checks that a copy has the same owners as its source.
func imageOwnersHoldInACopy(t testing.TB, c *Config) {
	e, table := c.Open(t, t.TempDir()), withOwners(t, c, usrOwners)
	allowed := func(s *engine.Spec) { table(s); s.SetID = true }
	saved := save(t, c.start(t, e, allowed))
	other := c.copyOf(t, e, saved, allowed, continuesAs(guest.Copied))
	// No file of /usr/share was looked up before the state was saved.
	other.want(t, statOwner+"/usr/share /usr/share/perl5 && id -u", "11:12 2755\n11:12 755\n0")
	// A state cannot be restored with owners other than those of the save.
	spec := c.spec(newID())
	withOwners(t, c, fileowners.Table{"/usr/bin/cat": {SetID: 0o4000}})(&spec)
	spec.SetID = true
	continuesAs(guest.Copied)(&spec)
	if err := saver(e).Restore(t.Context(), spec, saved); err == nil {
		t.Error("a state is restored with another table of owners")
	}
}
