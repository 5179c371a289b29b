package standard_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/server/standard"
)

func TestSettingsReadsPoliciesAndLimits(t *testing.T) {
	t.Parallel()
	policyFile := func(text string) string {
		path := filepath.Join(t.TempDir(), "policy.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	valid := "policy: v1\nnetwork: {unlisted: deny}\n"
	c := config.Config{
		Policies: config.Policies{Organisation: policyFile(valid), Project: policyFile(valid), Level: "strict"},
		Capacity: config.Capacity{Live: 7, Paused: 8}, Snapshots: config.Snapshots{Budget: 9, Retention: 10}, Lifetime: config.Lifetime{Default: time.Minute, Max: time.Hour, Retention: 2 * time.Hour},
	}
	s, err := standard.Settings(c)
	if err != nil || s.Organisation == nil || s.Project == nil || s.Organisation.Network.Unlisted != "deny" || s.Level != "strict" ||
		s.MaxLive != 7 || s.MaxPaused != 8 || s.SnapshotBudget != 9 || s.SnapshotRetention != 10 || s.DefaultTimeout != time.Minute || s.MaxTimeout != time.Hour || s.Retention != 2*time.Hour {
		t.Fatalf("got %+v (%v), want both policies and the limits of the settings", s, err)
	}
	p, _, err := (sandbox.Access{}).Compile(s)
	if err != nil || p.Level() != "strict" || len(p.Layers()) < 4 {
		t.Errorf("compiled policy: got %+v (%v), want the level strict", p, err)
	}

	// A policy file that cannot be read completely is rejected.
	for name, text := range map[string]string{
		"unknown field": valid + "networks: {}\n", "twice": valid + valid, "two documents": valid + "---\n" + valid,
		"empty": "", "too long": valid + strings.Repeat("#\n", 1<<20), "not text": "\x00",
	} {
		bad := c
		bad.Policies.Organisation = policyFile(text)
		if _, err := standard.Settings(bad); err == nil || !strings.Contains(err.Error(), "organisation_policy: ") {
			t.Errorf("organisation's policy, %s: got %v, want an error that names the setting", name, err)
		}
		bad = c
		bad.Policies.Project = policyFile(text)
		if _, err := standard.Settings(bad); err == nil || !strings.Contains(err.Error(), "project_policy: ") {
			t.Errorf("project's policy, %s: got %v, want an error that names the setting", name, err)
		}
	}
	c.Policies.Project = filepath.Join(t.TempDir(), "none")
	if _, err := standard.Settings(c); err == nil {
		t.Error("Settings accepted a policy file that does not exist")
	}
	c.Policies.Project, c.Policies.Level = "", "king"
	if _, err := standard.Settings(c); fault.CodeOf(err) != "level_unknown" {
		t.Errorf("unknown level: got %v, want level_unknown", err)
	}
}
