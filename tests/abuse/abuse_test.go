package abuse_test

import (
	"slices"
	"testing"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// attack is a hostile program or client.
type attack struct {
	name string
	// the users inside that try the attack; nil for an attack from outside
	users   []string
	options []crannog.CreateOption
	run     func(t *testing.T, b *testSandbox)
}

// Users of the sandbox that try an attack.
var (
	both     = []string{"user", "root"}
	ordinary = []string{"user"}
)

// triedBy returns the users who try the attack. Root of the sandbox can do all that the user can, so
// make test tries the attacks of both only as root.
func (a attack) triedBy() []string {
	if hosttest.Full() || !slices.Contains(a.users, "root") {
		return a.users
	}
	return []string{"root"}
}

// P45: an attack in one sandbox, or by one client, does not make the server grow, does not stop
// other sandboxes, and leaves nothing behind.
func TestAbuse(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python)
	a := newEnvironment(t)
	for _, attack := range slices.Concat(
		processAttacks, signalAttacks, memoryAttacks, diskAttacks, outputAttacks, linkAttacks,
	) {
		for _, user := range attack.triedBy() {
			t.Run(attack.name+"/"+user, func(t *testing.T) {
				b := a.newSandbox(t, user, attack.options...)
				check := a.observe(t)
				attack.run(t, b)
				check()
				requireAnswer(t, a.sibling)
			})
		}
	}
	for _, attack := range slices.Concat(connectionAttacks, clientAttacks, requestAttacks, strangerAttacks) {
		t.Run(attack.name, func(t *testing.T) {
			b := a.newSandbox(t, "", attack.options...)
			before := len(hosttest.Descriptors(t, a.PID()))
			check := a.observe(t)
			attack.run(t, b)
			check()
			requireAnswer(t, a.sibling)
			a.requireFilesClosed(t, before)
		})
	}
	a.close(t)
}
