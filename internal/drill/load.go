package drill

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/crannog/crannog/internal/host/pattern"
)

//go:embed scenarios/*.yaml
var builtIn embed.FS

var scenarioName = pattern.New(`^[a-z0-9][a-z0-9-]{0,62}$`)

// Load returns the scenarios of the program and of a directory, sorted by name. dir may be "".
func Load(dir string) ([]Scenario, error) {
	inside, err := fs.Sub(builtIn, "scenarios")
	if err != nil {
		return nil, err
	}
	all, err := read(inside, false)
	if err != nil || dir == "" {
		return all, err
	}
	added, err := read(os.DirFS(dir), true)
	switch {
	case err != nil:
		return nil, err
	case len(added) == 0:
		return nil, fmt.Errorf("%w: %s has no file that ends in .yaml", ErrOptions, dir)
	}
	for _, s := range added {
		if slices.ContainsFunc(all, func(a Scenario) bool { return a.Name == s.Name }) {
			return nil, fmt.Errorf("%w: the name %s is taken by a scenario of the program", ErrScenario, s.Name)
		}
	}
	all = append(all, added...)
	slices.SortFunc(all, func(a, b Scenario) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// Select returns the scenarios whose name or kind matches one of the patterns; all if there are
// none.
func Select(all []Scenario, patterns []string) ([]Scenario, error) {
	if len(patterns) == 0 {
		return all, nil
	}
	var out []Scenario
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil {
			return nil, fmt.Errorf("%w: the pattern %q is invalid", ErrOptions, p)
		}
		found := false
		for _, s := range all {
			byName, _ := path.Match(p, s.Name)
			byKind, _ := path.Match(p, s.Kind)
			if !byName && !byKind {
				continue
			}
			found = true
			if !slices.ContainsFunc(out, func(o Scenario) bool { return o.Name == s.Name }) {
				out = append(out, s)
			}
		}
		if !found {
			return nil, fmt.Errorf("%w: no scenario matches %q", ErrOptions, p)
		}
	}
	return out, nil
}

func read(dir fs.FS, fromUser bool) ([]Scenario, error) {
	entries, err := fs.ReadDir(dir, ".")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	var all []Scenario
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".yaml" {
			continue
		}
		text, err := fs.ReadFile(dir, e.Name())
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrOptions, err)
		}
		s, err := Parse(text)
		if err == nil && s.Name+".yaml" != e.Name() {
			err = fmt.Errorf("the name is %q, but the file's name needs %q", s.Name, strings.TrimSuffix(e.Name(), ".yaml"))
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrScenario, e.Name(), err)
		}
		s.FromUser = fromUser
		all = append(all, s)
	}
	return all, nil
}

// Parse reads a scenario strictly: a misspelt field would otherwise remove a defence or a control.
func Parse(text []byte) (Scenario, error) {
	var s Scenario
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&s); err != nil {
		return s, err
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return s, errors.New("a file has one scenario")
	}
	return s, s.check()
}

func (s *Scenario) check() error {
	switch {
	case !scenarioName.MatchString(s.Name):
		return errors.New("name: use lower-case letters, digits and -")
	case s.Kind == "" || s.Title == "" || s.Defence == "" || s.Attack == "":
		return errors.New("kind, title, defence and attack are needed")
	case !slices.Contains([]Goal{Output, Received, Changed}, s.Goal):
		return errors.New("goal: use output, received or changed")
	case s.Control.On != OnHost && s.Control.On != OnSandbox:
		return errors.New("control.on: use host or sandbox")
	case s.Control.On == OnHost && s.Works == "":
		return errors.New("works: a control on the host does not show that the attack's tools work in a sandbox, so a script for that is needed")
	case strings.Contains(s.Works, "{{"):
		return errors.New("works: a proof must not have the token")
	case s.Control.On == OnHost && (s.Control.Protected || s.Control.Settings != Settings{Seconds: s.Control.Seconds}):
		return errors.New("control: a control on the host has no settings of a sandbox")
	case s.Goal == Changed && s.Control.On == OnHost && s.Apply:
		return errors.New("control.on: nothing is applied on the host, so use sandbox")
	}
	for name := range s.Files {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("files: %q is not below the workspace", name)
		}
	}
	return nil
}
