package lockfile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pinned returns a line of a requirements file.
func pinned(name string) string {
	return name + "==1.0.0 --hash=sha256:" + strings.Repeat("ab", 32) + "\n"
}

func TestRequirementsFollowTheirIncludes(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "requirements.txt", "-r reqs/base.in\n--requirement=reqs/more.in\n-creqs/limits.in\n--index-url https://r.test\n"+pinned("top"))
	write(t, dir, "reqs/base.in", "-r ../.hidden/deep.in # beside\n"+pinned("base"))
	write(t, dir, "reqs/more.in", "--requirement \"base.in\"\n"+pinned("more"))
	write(t, dir, "reqs/limits.in", pinned("limits"))
	write(t, dir, ".hidden/deep.in", pinned("deep"))
	write(t, dir, "reqs/other.in", pinned("other"))
	s := collect(t, dir)
	if got := names(s); !slices.Equal(got, []string{"base", "deep", "limits", "more", "top"}) || len(s.Skipped) != 0 || s.Files != 5 {
		t.Errorf("got %q, %d files and %v, want the files to which requirements.txt leads, each once", got, s.Files, s.Skipped)
	}
}

// Attack: a workspace refers to files of the host, to links, and to itself.
func TestIncludesStayInTheWorkspace(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	write(t, outside, "secret.in", pinned("outside"))
	write(t, dir, "real/inside.in", pinned("inside"))
	for link, to := range map[string]string{"link.in": filepath.Join(outside, "secret.in"), "dir": outside, "within": "real"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	refused := map[string]string{
		"-r " + filepath.Join(outside, "secret.in"): "outside of the workspace", "-r ../" + filepath.Base(outside) + "/secret.in": "outside of the workspace",
		"-r link.in": "link", "-r dir/secret.in": "link", "-r within/inside.in": "link", "-r https://r.test/a.txt": "address", "-r file:///etc/passwd": "address",
		"-r requirements.txt": "refers to itself", "-r missing.in": "cannot be opened", "-r real": "not a regular file",
	}
	for line, why := range refused {
		write(t, dir, "requirements.txt", line+"\n"+pinned("top"))
		s := collect(t, dir)
		if got := names(s); !slices.Equal(got, []string{"top"}) || len(s.Skipped) != 1 || !strings.Contains(s.Skipped[0].Reason, why) {
			t.Errorf("%s: got %q and %v, want only top and the reason %q", line, got, s.Skipped, why)
		}
	}
	write(t, dir, "requirements.txt", "-r real/inside.in\n"+pinned("top"))
	if got := names(collect(t, dir)); !slices.Equal(got, []string{"inside", "top"}) {
		t.Errorf("control: got %q, want inside and top", got)
	}
}

func TestIncludesAreBounded(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "requirements.txt", "-r 1.in\n")
	for n := 1; n < 2*maxIncludeDepth; n++ {
		write(t, dir, fmt.Sprintf("%d.in", n), fmt.Sprintf("-r %d.in\n", n+1)+pinned(fmt.Sprintf("p%d", n)))
	}
	if s := collect(t, dir); len(s.Entries) != maxIncludeDepth || len(s.Skipped) != 1 || !strings.Contains(s.Skipped[0].Reason, "too many files lead to it") {
		t.Errorf("a long chain: got %d versions and %v, want %d", len(s.Entries), s.Skipped, maxIncludeDepth)
	}
	write(t, dir, "requirements.txt", strings.Repeat("-r x.in\n", maxIncludes+1)+pinned("top"))
	if s := collect(t, dir); len(s.Entries) != 0 || len(s.Skipped) != 1 {
		t.Errorf("many includes: got %d versions and %v, want none", len(s.Entries), s.Skipped)
	}
	// Two files that lead to each other.
	write(t, dir, "requirements.txt", "-r 1.in\n"+pinned("top"))
	write(t, dir, "1.in", "-r requirements.txt\n"+pinned("one"))
	if s := collect(t, dir); len(s.Entries) != 2 || len(s.Skipped) != 1 || !strings.Contains(s.Skipped[0].Reason, "refers to itself") {
		t.Errorf("a loop: got %q and %v", names(s), s.Skipped)
	}
}
