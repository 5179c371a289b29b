package guestmain

import (
	"bufio"
	"fmt"
)

// Machine is the virtual machine whose first process is the guest, on an engine that saves and
// restores the machine as a whole.
type Machine interface {
	// Instruct carries out an instruction of the engine and returns the answer, one line. If
	// restored is set, the machine has just continued from a saved state, and the new configuration
	// of the guest follows the instruction.
	Instruct(line []byte) (answer string, restored bool, err error)
	// Release lets the programs of a restored machine continue.
	Release() error
	// Become sets the host name, unless it is "", and generates a new boot ID if fresh is set.
	Become(hostname string, fresh bool) error
	// Marked is called when the guest has read all data that the engine sent through the channel
	// before a mark.
	Marked()
}

// RunIn is Run in a virtual machine.
func RunIn(m Machine, args ...string) int {
	return statusIn(platform{root: "/", events: eventsPath, become: m.Become, machine: m}, args)
}

// maxInstruction bounds the size of an instruction of the engine.
const maxInstruction = 64 << 10

// serveMachine carries out instructions of the engine until the machine ends.
func (b *guestSandbox) serveMachine(m Machine) {
	in := bufio.NewReaderSize(descriptor(b.standard.in), maxInstruction)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			b.failed <- fmt.Errorf("read an instruction: %w", err)
			return
		}
		answer, restored, err := m.Instruct(line)
		if err == nil && restored {
			err = b.applyRestored(in, m.Release)
		} else if err == nil {
			_, err = fmt.Fprintln(descriptor(b.standard.out), answer)
		}
		if err != nil {
			// A machine must not continue with the keys and the identity of another one.
			b.failed <- err
			return
		}
	}
}

// markedPorts are the guest's ports in a machine.
type markedPorts struct {
	guestPorts
	machine Machine
}

// Marked implements relay.Marked.
func (p markedPorts) Marked() { p.machine.Marked() }
