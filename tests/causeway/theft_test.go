package causeway_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/egress/secrets"
	"github.com/crannog/crannog/internal/store"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// P20: a stolen database is useless without the key.
func TestS9StolenDatabaseNeedsKey(t *testing.T) {
	need(t)
	t.Parallel()
	w, err := newInternet()
	if err != nil {
		t.Fatal(err)
	}
	state := hosttest.ShortDir(t)
	a := &environment{internet: w, state: state, client: local(t, state, w)}
	up := a.web(t, 443, nil, "api.s9.test")
	for name, value := range map[string]string{"S9": canary, "OTHER": "other-0a1b2c3d4e5f60718293"} {
		if _, err := a.client.NewSecret(t.Context(), api.CreateSecret{Name: name, Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.client.Close(); err != nil {
		t.Fatal(err)
	}
	// steal opens a copy of the database, changed by an SQL statement, with the key if withKey is
	// set.
	steal := func(withKey bool, change string) *environment {
		to := hosttest.ShortDir(t)
		files, err := filepath.Glob(filepath.Join(state, store.FileName+"*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no database: %v", err)
		}
		if withKey {
			files = append(files, filepath.Join(state, secrets.KeyFileName))
		}
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(data), canary) {
				t.Errorf("%s contains the secret in plain text", f)
			}
			if err := os.WriteFile(filepath.Join(to, filepath.Base(f)), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if change != "" {
			db, err := sql.Open("sqlite", filepath.Join(to, store.FileName))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.ExecContext(t.Context(), change); err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}
		client := local(t, to, w)
		t.Cleanup(func() {
			if err := client.Close(); err != nil {
				t.Error(err)
			}
			if err := awaitCauseway(to); err != nil {
				t.Error(err)
			}
		})
		return &environment{internet: w, state: to, client: client}
	}
	useSecret := func(a *environment) (string, error) {
		sb, err := a.client.Create(t.Context(), crannog.Policy("policy: v1\nname: s9\n"+withJailLevel(boundPolicy("S9", "api.s9.test"))))
		if err != nil {
			return "", err
		}
		defer func() {
			if err := sb.Kill(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		}()
		out, err := sb.CommandContext(t.Context(), "curl", "-sS", "-m", "10", "https://api.s9.test/").CombinedOutput()
		return string(out), err
	}
	if out, err := useSecret(steal(false, "")); err == nil {
		t.Errorf("without the key: %s", out)
	}
	// Replace a secret's ciphertext by another secret's, and by that of another version.
	swap := `UPDATE secret_versions SET (sealed, wrapped) = (SELECT v.sealed, v.wrapped FROM secret_versions v JOIN secrets s ON s.id = v.secret WHERE s.name = 'OTHER')
		WHERE secret = (SELECT id FROM secrets WHERE name = 'S9')`
	if out, err := useSecret(steal(true, swap)); err == nil {
		t.Errorf("with another secret's ciphertext: %s", out)
	}
	if out, err := useSecret(steal(true, "UPDATE secret_versions SET version = version + 1; UPDATE secrets SET version = version + 1")); err == nil {
		t.Errorf("with another version's ciphertext: %s", out)
	}
	if len(up.seen()) > 0 {
		t.Errorf("the fake internet got %+v", up.seen())
	}
	if out, err := useSecret(steal(true, "")); err != nil || len(up.seen()) != 1 || up.seen()[0].auth() != "Bearer "+canary {
		t.Errorf("with the key: %v %s", err, out)
	}
}
