package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/crannog/crannog"
)

const (
	nameNpmHost   = "npm ci on the host"
	nameNpmDirect = "npm ci in a sandbox, without the package cache"
	nameNpmCached = "npm ci in a sandbox, from the package cache"
	npmRegistry   = "registry.npmjs.org"
)

// npmProject is a project with some 500 packages: a usual web application with its tools.
const npmProject = `{"name": "project", "version": "1.0.0", "private": true, "dependencies": {
	"express": "4.21.2", "webpack": "5.97.1", "webpack-cli": "6.0.1", "jest": "29.7.0", "eslint": "9.17.0", "lodash": "4.17.21"}}`

var npmArgs = []string{"npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel", "error"}

// packageFigures installs the packages of a project again and again. npm's own cache is always
// empty, as in each new sandbox. The first round, which is not counted, fills the package cache.
func packageFigures(ctx context.Context, b *bench) (err error) {
	const title = "install the packages of a project"
	dir := filepath.Join(b.dir, "project")
	count, err := lockProject(ctx, dir)
	if err != nil {
		sec := section{Group: "packages", Title: title, Unit: "ms"}
		sec.note("left out: %v", err)
		b.report.add(sec)
		return nil
	}
	direct, err := npmPolicy(ctx, "")
	if err != nil {
		return err
	}
	cached, err := npmPolicy(ctx, "packages: {cache: [npm]}\n")
	if err != nil {
		return err
	}
	client, err := b.local(ctx, "packages")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	s, err := race(ctx, b.fewer(5),
		contender{nameNpmHost, func(ctx context.Context, s *scores) error { return npmOnHost(ctx, dir, s) }},
		contender{nameNpmDirect, func(ctx context.Context, s *scores) error {
			return npmInSandbox(ctx, client, nameNpmDirect, dir, direct, s)
		}},
		contender{nameNpmCached, func(ctx context.Context, s *scores) error {
			return npmInSandbox(ctx, client, nameNpmCached, dir, cached, s)
		}},
	)
	if err != nil {
		return err
	}
	sec := table("packages", title, "ms", s, nameNpmHost, nameNpmDirect, nameNpmCached)
	sec.against(nameNpmDirect)
	sec.target(nameNpmCached, "≤ 0.50× "+nameNpmDirect, func(r row) bool { return r.Ratio <= 0.5 })
	sec.note("%d packages; npm's own cache is empty each time", count)
	b.report.add(sec)
	return nil
}

// lockProject creates the project with its lockfile, and returns the number of packages in it.
func lockProject(ctx context.Context, dir string) (int, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(npmProject), 0o600); err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, "npm", "install", "--package-lock-only", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("npm cannot read its registry: %w: %.300s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return 0, err
	}
	var lock struct {
		Packages map[string]json.RawMessage `json:"packages"`
	}
	if err := json.Unmarshal(text, &lock); err != nil {
		return 0, err
	}
	return len(lock.Packages) - 1, nil // the project itself is one of them
}

// npmPolicy returns a policy that allows reading from the registry, which may be a mirror at a
// private address.
func npmPolicy(ctx context.Context, more string) (string, error) {
	addresses, err := net.DefaultResolver.LookupIPAddr(ctx, npmRegistry)
	if err != nil {
		return "", err
	}
	var ranges []string
	for _, a := range addresses {
		bits := "/32"
		if a.IP.To4() == nil {
			bits = "/128"
		}
		ranges = append(ranges, `"`+a.IP.String()+bits+`"`)
	}
	return "policy: v1\nnetwork: {hosts: [{host: " + npmRegistry + ", encoded_slash: true, cidrs: [" + strings.Join(ranges, ", ") +
		"], rules: [{methods: [GET, HEAD], do: allow}]}]}\n" + more, nil
}

func npmOnHost(ctx context.Context, dir string, s *scores) error {
	defer os.RemoveAll(filepath.Join(dir, "node_modules"))
	cache, err := os.MkdirTemp("", "crannog-bench-npm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(cache)
	cmd := exec.CommandContext(ctx, npmArgs[0], append(npmArgs[1:], "--cache", cache)...)
	cmd.Dir = dir
	began := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %.300s", err, out)
	}
	s.addTime(nameNpmHost, time.Since(began))
	return nil
}

func npmInSandbox(ctx context.Context, client *crannog.Client, name, dir, policy string, s *scores) (err error) {
	sb, err := client.Create(ctx, crannog.Workspace(dir), crannog.Policy(policy), crannog.Ephemeral())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sb.Kill(context.WithoutCancel(ctx))) }()
	began := time.Now()
	if out, err := sb.CommandContext(ctx, npmArgs[0], npmArgs[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %.300s", err, out)
	}
	s.addTime(name, time.Since(began))
	return nil
}
