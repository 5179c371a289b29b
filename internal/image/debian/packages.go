package debian

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"pault.ag/go/debian/control"
	"pault.ag/go/debian/dependency"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages/apt"
)

// pkg is a package of the archive.
type pkg struct {
	name, path string
	file       apt.File
	essential  bool // dpkg does not work without it, so it is unpacked first
	required   bool
	needs      []string // Pre-Depends and Depends
}

// deb returns the name of the package's file.
func (p *pkg) deb() string { return p.name + ".deb" }

// index has the packages of a suite.
type index struct {
	byName   map[string]*pkg
	provided map[string][]*pkg // packages that provide a name, in the order of the list
}

// parseIndex reads a list of packages. Its fields become names of files and words of shell
// commands, so their characters are checked, although the archive has signed them.
func parseIndex(r *bufio.Reader) (*index, error) {
	reader, err := control.NewParagraphReader(r, nil)
	if err != nil {
		return nil, fmt.Errorf("list of packages: %w", err)
	}
	all := &index{byName: map[string]*pkg{}, provided: map[string][]*pkg{}}
	for {
		one, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list of packages: %w", err)
		}
		v := one.Values
		p := &pkg{name: v["Package"], path: v["Filename"], essential: v["Essential"] == "yes", required: v["Priority"] == "required"}
		if p.file, err = apt.ParseFile(v["Size"], v["SHA256"]); err != nil || !plainName(p.name) || p.path != path.Clean(p.path) || !strings.HasPrefix(p.path, "pool/") {
			return nil, fault.Newf(fault.Invalid, CodeIntegrity, "the list of packages has an invalid entry for %.100q", p.name)
		}
		for _, field := range []string{"Pre-Depends", "Depends"} {
			if v[field] != "" {
				p.needs = append(p.needs, v[field])
			}
		}
		if _, known := all.byName[p.name]; known {
			continue // a suite may have several versions, of which the first is enough
		}
		all.byName[p.name] = p
		for name := range strings.SplitSeq(v["Provides"], ",") {
			name, _, _ = strings.Cut(strings.TrimSpace(name), " ")
			all.provided[name] = append(all.provided[name], p)
		}
	}
}

// choose returns the essential and required packages, apt, the named ones, and what all of them
// depend on, sorted by name. The list of a suite is consistent, so versions are not compared.
func (x *index) choose(named []string) ([]*pkg, error) {
	chosen := map[string]*pkg{}
	var first, others []string
	for name, p := range x.byName {
		if p.essential {
			first = append(first, name)
		} else if p.required {
			others = append(others, name)
		}
	}
	slices.Sort(first)
	slices.Sort(others)
	if err := x.add(chosen, first); err != nil {
		return nil, err
	}
	// The dependencies of essential packages must also be unpacked before dpkg runs.
	for _, p := range chosen {
		p.essential = true
	}
	if err := x.add(chosen, slices.Concat(others, []string{"apt", "ca-certificates"}, named)); err != nil {
		return nil, err
	}
	list := make([]*pkg, 0, len(chosen))
	for _, p := range chosen {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *pkg) int { return strings.Compare(a.name, b.name) })
	return list, nil
}

// add adds packages and their dependencies.
func (x *index) add(chosen map[string]*pkg, names []string) error {
	// The named packages come first, because they may satisfy a dependency of another package.
	var next []*pkg
	for _, name := range names {
		p, ok := x.byName[name]
		if !ok {
			return fault.Newf(fault.NotFound, CodePackage, "the suite has no package %.100q", name)
		}
		if chosen[name] == nil {
			chosen[name] = p
			next = append(next, p)
		}
	}
	for len(next) > 0 {
		p := next[0]
		next = next[1:]
		for _, text := range p.needs {
			d, err := dependency.Parse(text)
			if err != nil {
				return fault.Wrap(err, fault.Invalid, CodeIntegrity, fmt.Sprintf("the dependencies of the package %s cannot be read", p.name))
			}
			for _, r := range d.Relations {
				q, err := x.satisfy(chosen, p, r.Possibilities)
				if err != nil {
					return err
				}
				if chosen[q.name] == nil {
					chosen[q.name] = q
					next = append(next, q)
				}
			}
		}
	}
	return nil
}

// merged is the package that only states that /bin is a link to /usr/bin, which is true for these
// images. The alternative usrmerge moves the files of an installed system, and is not needed.
const merged = "usr-is-merged"

// satisfy returns the package for one dependency: a chosen package, else the first alternative that
// exists.
func (x *index) satisfy(chosen map[string]*pkg, dependent *pkg, alternatives []dependency.Possibility) (*pkg, error) {
	var names []string
	var first *pkg
	for _, a := range alternatives {
		names = append(names, a.Name)
		candidates := x.provided[a.Name]
		if p := x.byName[a.Name]; p != nil {
			candidates = slices.Concat([]*pkg{p}, candidates)
		}
		for _, p := range candidates {
			if chosen[p.name] != nil || p.name == merged {
				return p, nil
			}
			if first == nil || p.required && !first.required {
				first = p
			}
		}
	}
	if first == nil {
		return nil, fault.Newf(fault.NotFound, CodePackage, "the package %s needs %.200q, which the suite does not have", dependent.name, strings.Join(names, " | "))
	}
	return first, nil
}
