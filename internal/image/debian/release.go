package debian

import (
	"bytes"
	"context"
	"os"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages/apt"
	"github.com/crannog/crannog/internal/packages/keyring"
)

// maxRelease bounds the signed list of index files, in bytes.
const maxRelease = 4 << 20

// release fetches and verifies the list of index files. An attacker who controls the mirror or the
// connection to it can neither change the list nor replace it by that of another suite.
func (m *mirror) release(ctx context.Context, suite, keyringFile string) (*apt.Release, error) {
	if !plainName(suite) {
		return nil, fault.Newf(fault.Invalid, "debian_suite_invalid", "%.100q is not the name of a suite", suite)
	}
	keys, err := readKeyring(keyringFile)
	if err != nil {
		return nil, err
	}
	var signed bytes.Buffer
	if err := m.get(ctx, "dists/"+suite+"/InRelease", maxRelease, &signed); err != nil {
		return nil, err
	}
	text, err := apt.SignedText(signed.Bytes(), keys, time.Now())
	if err != nil {
		return nil, badRelease(err)
	}
	list, err := apt.ParseRelease(text, suite, time.Now())
	if err != nil {
		return nil, badRelease(err)
	}
	return list, nil
}

func badRelease(err error) error {
	return fault.Wrap(err, fault.Denied, CodeSignature, "the mirror's list of index files "+err.Error())
}

// readKeyring reads OpenPGP keys, armored or not.
func readKeyring(name string) (keyring.Keys, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return keyring.Keys{}, fault.Wrap(err, fault.Invalid, CodeSignature, "the keys that sign Debian's archive cannot be read: "+err.Error()).
			WithHint("install the package debian-archive-keyring, or name a file of keys with --keyring")
	}
	keys, err := keyring.Parse(data)
	if err != nil {
		return keyring.Keys{}, fault.Wrap(err, fault.Invalid, CodeSignature, name+" is not a file of OpenPGP keys: "+err.Error())
	}
	return keys, nil
}

// plainName reports whether a text can be one element of a path and of a shell command.
func plainName(text string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.+-_~:%"
	return text != "" && text[0] != '.' && text[0] != '-' && strings.Trim(text, allowed) == ""
}
