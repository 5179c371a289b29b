package cli

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/crannog/crannog/api"
)

func TestLastAssignmentTakesPrecedence(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	for name, text := range map[string]string{one: "A=1\nB=1\nC=1\nD=1\n", two: "A=2\nB=2\nE\nUNSET\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := newApp(Env{Vars: []string{"E=ours", "EMPTY="}})
	got, err := a.assignments([]string{"B=flag", "D", "EMPTY", "NOWHERE"}, []string{one, two})
	want := []string{"C=1", "A=2", "E=ours", "B=flag", "EMPTY="}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("assignments: got %q, error %v, want %q", got, err, want)
	}
}

// F12: without TZ, the time zone is the one that /etc/localtime leads to.
func TestF12HostTimeZone(t *testing.T) {
	link := func(to string) string {
		etc := t.TempDir()
		if err := os.Symlink(to, filepath.Join(etc, "localtime")); err != nil {
			t.Fatal(err)
		}
		return etc
	}
	file := func(zone string) string {
		etc := t.TempDir()
		for name, text := range map[string]string{"localtime": "TZif2", "timezone": zone + "\n"} {
			if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return etc
	}
	for name, c := range map[string]struct {
		etc, vars, want string
	}{
		"a link":               {link("/usr/share/zoneinfo/Europe/Zurich"), "", "TZ=Europe/Zurich"},
		"a relative link":      {link("../usr/share/zoneinfo/America/Port-au-Prince"), "", "TZ=America/Port-au-Prince"},
		"posix":                {link("/usr/share/zoneinfo/posix/Etc/GMT+5"), "", "TZ=posix/Etc/GMT+5"},
		"a variable":           {link("/usr/share/zoneinfo/Europe/Zurich"), "TZ=Asia/Tokyo", "TZ=Asia/Tokyo"},
		"an empty variable":    {link("/usr/share/zoneinfo/Europe/Zurich"), "TZ=", "TZ="},
		"a file with a name":   {file("Asia/Kolkata"), "", "TZ=Asia/Kolkata"},
		"a file with a path":   {file("../../etc/passwd"), "", ""},
		"an unknown directory": {link("/somewhere/else"), "", ""},
		"out of the tree":      {link("/usr/share/zoneinfo/../../etc/shadow"), "", ""},
		"nothing":              {t.TempDir(), "", ""},
	} {
		a := newApp(Env{Etc: c.etc})
		if c.vars != "" {
			a.vars = []string{c.vars}
		}
		got := slices.DeleteFunc(a.environment("", api.Sandbox{}, false), func(pair string) bool { return pair[:3] != "TZ=" })
		if len(got) > 1 || len(got) == 0 != (c.want == "") || len(got) == 1 && got[0] != c.want {
			t.Errorf("%s: got TZ %q, want %q", name, got, c.want)
		}
	}
}
