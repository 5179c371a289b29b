package abuse_test

import (
	"slices"
	"testing"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// attack is one thing that a hostile program or client does.
type attack struct {
	name string
	// the users inside who try it; nil for an attack from outside
	users   []string
	options []crannog.CreateOption
	run     func(t *testing.T, b *testSandbox)
}

// both tries an attack as the sandbox's ordinary user and as its root.
var (
	both     = []string{"user", "root"}
	ordinary = []string{"user"}
)

// P45: whatever happens in one sandbox, or one client sends, the server stays small, other
// sandboxes answer, and nothing is left.
func TestAbuse(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Python)
	a := newEnvironment(t)
	for _, attack := range slices.Concat(
		processAttacks, signalAttacks, memoryAttacks, diskAttacks, outputAttacks, linkAttacks,
	) {
		for _, user := range attack.users {
			t.Run(attack.name+"/"+user, func(t *testing.T) {
				b := a.newSandbox(t, user, attack.options...)
				judge := a.observe(t)
				attack.run(t, b)
				judge()
				answers(t, a.sibling)
			})
		}
	}
	for _, attack := range slices.Concat(connectionAttacks, clientAttacks, requestAttacks, strangerAttacks) {
		t.Run(attack.name, func(t *testing.T) {
			b := a.newSandbox(t, "", attack.options...)
			before := len(hosttest.Descriptors(t, a.PID()))
			judge := a.observe(t)
			attack.run(t, b)
			judge()
			answers(t, a.sibling)
			a.requireFilesClosed(t, before)
		})
	}
	a.close(t)
}
