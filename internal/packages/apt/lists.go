package apt

import (
	"context"
	"errors"
	"net/url"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/keyring"
)

// Keyring has the keys that may sign lists.
type Keyring interface {
	Keys() (keyring.Keys, error)
}

// release returns the list of a suite's index files and its signed form, which a key of the keyring
// has signed or the policy tolerates. An attacker between the cache and the archive could otherwise
// fill the cache with lists of his own, for clients that do not verify them.
func (p *Protocol) release(ctx context.Context, s packages.Source, origin, base, suite string) (packages.Text, *Release, error) {
	at := origin + base + "/dists/" + suite + "/InRelease"
	name := archiveName(origin, base, suite)
	var list *Release
	text, err := s.Text(ctx, packages.Query{URL: at, Check: func(t packages.Text) (err error) {
		list, err = p.read(ctx, s, at, name, suite, t)
		return err
	}})
	if err != nil {
		return text, nil, err
	}
	return text, list, nil
}

// archiveName is the name of a suite of an archive in packages.unverified: HOST/BASE/SUITE, without
// a port.
func archiveName(origin, base, suite string) string {
	host := origin
	if u, err := url.Parse(origin); err == nil {
		host = u.Hostname()
	}
	return host + base + "/" + suite
}

// read verifies and parses a list.
func (p *Protocol) read(ctx context.Context, s packages.Source, at, name, suite string, t packages.Text) (*Release, error) {
	keys, err := p.keys.Keys()
	if err != nil {
		return nil, err
	}
	now := p.now()
	// A key can expire or be added while the process runs, so a verified list is not remembered for
	// long, and only for these keys.
	const hour = "2006-01-02T15"
	key := at + " " + t.SHA256 + " " + keys.State + " " + now.UTC().Format(hour)
	list, err := packages.Parsed(ctx, s, key, func() (*Release, error) {
		signed, err := splitSigned(t.Body)
		if err != nil {
			return nil, badList(name, err)
		}
		unverified := ""
		if err := keys.Verify(signed.canonical, signed.signatures, now); err != nil {
			untrusted, ok := errors.AsType[*keyring.UntrustedError](err)
			if !ok {
				return nil, badList(name, err)
			}
			unverified = untrusted.Reason
		}
		list, err := ParseRelease(signed.text, suite, now)
		if err != nil {
			return nil, badList(name, err)
		}
		list.unverified = unverified
		return list, nil
	})
	if err != nil {
		return nil, err
	}
	if err := list.current(now); err != nil {
		return nil, badList(name, err)
	}
	if list.unverified != "" && !s.Unverified(name) {
		return nil, &packages.Failure{Rule: packages.RuleIntegrity, Unverified: true, Reason: "apt:" + name +
			" cannot be verified: its list of index files " + list.unverified +
			"; the setting package_keyrings can name a file with the archive's key, or packages.unverified of the policy can permit it"}
	}
	return list, nil
}

func badList(name string, err error) error {
	return packages.Tampered("the list of index files of apt:" + name + " " + err.Error())
}
