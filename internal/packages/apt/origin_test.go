package apt

import "testing"

func TestSourceAndReleaseOfPackages(t *testing.T) {
	for field, want := range map[string][2]string{
		"": {"libssl3", "3.0-1+b1"}, "openssl": {"openssl", "3.0-1+b1"}, "openssl (3.0-1)": {"openssl", "3.0-1"},
	} {
		if got := sourceOf(field, "libssl3", "3.0-1+b1"); got.Name != want[0] || got.Version != want[1] {
			t.Errorf("Source: %s is %+v, want %v", field, got, want)
		}
	}
	for _, c := range [][3]string{
		{"Debian", "12.5", "Debian:12"}, {"Debian", "12", "Debian:12"}, {"Debian", "", "Debian"}, {"Debian", "12; x", "Debian"},
		{"Ubuntu", "22.04", "Ubuntu:22.04"}, {"Docker", "12", ""}, {"", "12", ""},
	} {
		if got := distributionOf(c[0], c[1]); got != c[2] {
			t.Errorf("Origin %q, Version %q: got %q, want %q", c[0], c[1], got, c[2])
		}
	}
}
