package secrets

import (
	"context"
	"errors"
	"runtime"
	"syscall"
	"time"

	"github.com/zalando/go-keyring"

	"github.com/crannog/crannog/internal/fault"
)

const (
	keyringService = "crannog secrets key"
	// keyringTimeout is how long a person has to unlock the keyring.
	keyringTimeout = time.Minute
)

// NewKeyring returns a Local that stores keys in the operating system's keyring, under the name of
// a state directory. lockPath is a file in that directory.
func NewKeyring(name, lockPath string, getenv func(string) string) (*Local, error) {
	// Without the address the library would start a new bus, whose keyring was never unlocked.
	if runtime.GOOS == "linux" && getenv("DBUS_SESSION_BUS_ADDRESS") == "" {
		return nil, fault.New(fault.Unavailable, "keyring_missing", "there is no session whose keyring could keep the key of the secrets").
			WithHint("start the server from a desktop session, or set secrets_key to file")
	}
	return &Local{keyringStore{name, lockPath + ".create"}, lockPath}, nil
}

// keyringStore is one entry of the keyring.
type keyringStore struct{ name, lockPath string }

func (k keyringStore) String() string { return "the keyring's entry for " + k.name }

func (k keyringStore) load() ([]byte, error) {
	data, err := within(func() (string, error) { return keyring.Get(keyringService, k.name) })
	if errors.Is(err, keyring.ErrNotFound) {
		return nil, missing(k)
	}
	return []byte(data), err
}

func (k keyringStore) create(data []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), keyringTimeout)
	defer cancel()
	// The keyring has no atomic creation.
	release, err := lockFile(ctx, k.lockPath, syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer release()
	if _, err := k.load(); fault.CodeOf(err) != codeKeyMissing {
		return err
	}
	return k.replace(data)
}

func (k keyringStore) replace(data []byte) error {
	_, err := within(func() (string, error) { return "", keyring.Set(keyringService, k.name, string(data)) })
	return err
}

// within limits the wait for a person, who may be absent.
func within(work func() (string, error)) (string, error) {
	type result struct {
		data string
		err  error
	}
	done := make(chan result, 1)
	go func() {
		data, err := work()
		done <- result{data, err}
	}()
	select {
	case r := <-done:
		if r.err == nil || errors.Is(r.err, keyring.ErrNotFound) {
			return r.data, r.err
		}
		return "", fault.Wrap(r.err, fault.Unavailable, "keyring_failed", "the keyring with the key of the secrets does not answer as it should")
	case <-time.After(keyringTimeout):
		return "", fault.New(fault.Unavailable, "keyring_locked", "the keyring with the key of the secrets was not unlocked in time")
	}
}
