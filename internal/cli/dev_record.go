package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/devcontainer"
	"github.com/crannog/crannog/internal/host/durable"
)

// devRecord remembers which sandbox belongs to a configuration, and which of its commands have run.
type devRecord struct {
	Sandbox string   `json:"sandbox"`
	Digest  string   `json:"digest"` // of the plan that it was made from
	Image   string   `json:"image"`
	Done    []string `json:"done"`
	// Plan is what it was made from. It stays in use until --rebuild, even if the file changes: the
	// paths and users of a changed file do not exist in the sandbox.
	Plan devcontainer.Plan `json:"plan"`

	continued bool
}

// lock waits until no other process prepares the same development container.
func (s *devSession) lock() (release func(), err error) {
	name, err := s.devFile(".lock")
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	defer s.progress("waiting for another crannog dev of this directory")()
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return func() { f.Close() }, nil
}

func (s *devSession) load() error {
	name, err := s.devFile(".json")
	if err != nil {
		return err
	}
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if json.Unmarshal(data, &s.record) != nil {
		// A damaged record only costs a new sandbox.
		s.record = devRecord{}
	}
	return nil
}

func (s *devSession) save() error {
	name, err := s.devFile(".json")
	if err != nil {
		return err
	}
	data, err := json.Marshal(s.record)
	if err != nil {
		return err
	}
	return durable.Replace(name, data, durable.Options{})
}

// digest identifies the plan and the text of its Dockerfile.
func (s *devSession) digest() (string, error) {
	hash := sha256.New()
	if err := json.NewEncoder(hash).Encode(s.plan); err != nil {
		return "", err
	}
	if s.plan.Build != nil {
		data, err := readFile(s.plan.Build.Dockerfile, maxDockerfile)
		if err != nil {
			return "", err
		}
		hash.Write(data)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
