package compat_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// redactedValue is shown instead of a secret value.
const redactedValue = "[redacted]"

// settingsFile has a value other than the default for each setting of the earlier version.
const settingsFile = "testdata/config.toml"

// setting is a row of crannog config --json.
type setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

// settings has the defaults and the values with a settings file.
type settings struct {
	Default []setting `json:"default"`
	File    []setting `json:"file"`
}

func readSettings(t *testing.T, run program) settings {
	t.Helper()
	list := func(args ...string) []setting {
		code, stdout, stderr := run(t, append([]string{"config", "--json"}, args...)...)
		if code != 0 {
			t.Fatalf("config %q: %d %s", args, code, stderr)
		}
		list := decodeJSON[[]setting](t, stdout)
		for i := range list {
			if list[i].Name == "state" && list[i].Origin == "default" {
				list[i].Value = "" // depends on the user
			}
		}
		return list
	}
	return settings{list(), list("--config", settingsFile)}
}

// P51: every setting of the earlier version is read from a file, by its name, has the same default
// and accepts the same values.
func TestSettings(t *testing.T) {
	want := golden(t, "settings.json", func(p program) settings { return readSettings(t, p) })
	got := readSettings(t, current)
	if len(want.Default) < 30 || len(want.File) != len(want.Default) {
		t.Fatalf("testdata lists %d defaults and %d values of the file, want at least 30 of each", len(want.Default), len(want.File))
	}
	for i, s := range want.File {
		if s.Origin != settingsFile || s.Value == want.Default[i].Value && s.Value != redactedValue {
			t.Errorf("%s must set %s to a value other than the default", settingsFile, s.Name)
		}
	}
	compareSettings(t, want.Default, got.Default)
	compareSettings(t, want.File, got.File)
}

func compareSettings(t *testing.T, want, got []setting) {
	t.Helper()
	now := map[string]setting{}
	for _, s := range got {
		now[s.Name] = s
	}
	for _, s := range want {
		if now[s.Name] != s {
			t.Errorf("the setting %s was %+v and is %+v", s.Name, s, now[s.Name])
		}
	}
}

// TestUnknownSettingIsRejected is the control of TestSettings.
func TestUnknownSettingIsRejected(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(file, []byte("max_lives = 9\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := current(t, "config", "--config", file); code == 0 || !strings.Contains(stderr, "max_lives") {
		t.Errorf("a file with an unknown setting: got exit code %d, %s, want an error that names it", code, stderr)
	}
}
