package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Instruction is what the engine tells the guest of a machine when the machine is saved or
// restored, as one line of JSON at the boot port.
type Instruction struct {
	Op operation
	// Marks is how many marks the keeper has sent through the channel. The guest holds the programs
	// once it has read that many.
	Marks int `json:",omitempty"`
	// Time and Seed are as in a Request. The guest's configuration follows.
	Time time.Time `json:",omitzero"`
	Seed []byte    `json:",omitempty"`
}

// Hold returns the instruction before a save. The guest answers with a line that is Done or begins
// with Failed.
func Hold(marks int) Instruction { return Instruction{Op: opHold, Marks: marks} }

// Release returns the instruction after a save. The guest answers as after Hold.
func Release() Instruction { return Instruction{Op: opRelease} }

// Renew returns the instruction for a restored machine. The guest answers like a new one.
func Renew(now time.Time, seed []byte) Instruction {
	return Instruction{Op: opRenew, Time: now, Seed: seed}
}

// Answers of the guest.
const (
	Done   = "done"
	Failed = "failed "
)

// markTime bounds how long the guest waits for data that the keeper has already sent.
const markTime = 2 * time.Minute

// overseen is the machine for the guest. It implements guestmain.Machine.
type overseen struct {
	mu     sync.Mutex // held during an order
	socket *os.File
	encode *json.Encoder
	decode *json.Decoder

	counting sync.Mutex
	marks    int
	changed  chan struct{}
}

func newOverseen(socket *os.File) *overseen {
	return &overseen{socket: socket, encode: json.NewEncoder(socket), decode: json.NewDecoder(socket), changed: make(chan struct{}, 1)}
}

// order makes the overseer carry out an order.
func (m *overseen) order(o order) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var result outcome
	err := m.encode.Encode(o)
	if err == nil {
		err = m.decode.Decode(&result)
	}
	if err != nil {
		return fmt.Errorf("the overseer of the machine does not answer: %w", err)
	}
	if result.Error != "" {
		return errors.New(result.Error)
	}
	return nil
}

// Instruct implements guestmain.Machine.
func (m *overseen) Instruct(line []byte) (answer string, restored bool, err error) {
	var i Instruction
	if err := json.Unmarshal(line, &i); err != nil {
		return "", false, fmt.Errorf("instruction of the engine: %w", err)
	}
	switch i.Op {
	case opRenew:
		m.resetMarks() // another keeper counts
		return "", true, m.order(order{Op: opRenew, Time: i.Time, Seed: i.Seed})
	case opHold:
		err = m.hold(i.Marks)
	default:
		err = m.order(order{Op: i.Op})
	}
	if err != nil {
		return Failed + trimmed(err.Error()), false, nil
	}
	return Done, false, nil
}

// hold stops the programs when all data that the keeper has sent was read.
func (m *overseen) hold(marks int) error {
	late := time.NewTimer(markTime)
	defer late.Stop()
	for m.markCount() < marks {
		select {
		case <-m.changed:
		case <-late.C:
			return errors.New("the guest does not read its channel")
		}
	}
	err := m.order(order{Op: opHold})
	if err != nil {
		err = errors.Join(err, m.Release())
	}
	return err
}

// Release implements guestmain.Machine.
func (m *overseen) Release() error { return m.order(order{Op: opRelease}) }

// Become implements guestmain.Machine.
func (m *overseen) Become(hostname string, fresh bool) error {
	return m.order(order{Op: opBecome, Hostname: hostname, Fresh: fresh})
}

// Marked implements guestmain.Machine.
func (m *overseen) Marked() {
	m.counting.Lock()
	m.marks++
	m.counting.Unlock()
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

func (m *overseen) resetMarks() {
	m.counting.Lock()
	defer m.counting.Unlock()
	m.marks = 0
}

func (m *overseen) markCount() int {
	m.counting.Lock()
	defer m.counting.Unlock()
	return m.marks
}
