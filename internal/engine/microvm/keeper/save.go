package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/engine/microvm/machine"
)

// Order is a request of the engine, as one line of JSON at the socket for orders. The keeper saves
// the machine to two new files and lets it continue, or stops it until the engine closes the
// connection.
type Order struct {
	Memory string // the path of the file for the memory
	Device string // the path of the file for the state of processors and devices
	Stop   bool   // stop the machine instead
}

// Outcome is the answer to an Order, as one line of JSON.
type Outcome struct {
	Error string `json:",omitempty"`
	// DiskFull is set if there is no space for the files, and Busy if the programs in the machine
	// could not be stopped.
	DiskFull bool `json:",omitempty"`
	Busy     bool `json:",omitempty"`
}

// Bounds of a save. Device states are about 60 kB.
const (
	maxOrder = 64 << 10
	// MaxDevice bounds the size of a device state, because a machine that is taken over writes it.
	MaxDevice = 16 << 20
	// answerTime bounds how long QEMU and the guest may take for one step. It only ends a hang, and is
	// longer than the guest's own bounds.
	answerTime = 10 * time.Minute
)

// errBusy is returned if the guest does not stop the programs.
var errBusy = errors.New("the programs in the machine cannot be stopped")

// takeOrders answers orders until the machine ends, one at a time.
func (k *keeper) takeOrders(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		k.answer(conn)
	}
}

// answer carries out one order.
func (k *keeper) answer(conn net.Conn) {
	defer conn.Close()
	var o Order
	if conn.SetReadDeadline(time.Now().Add(answerTime)) != nil || json.NewDecoder(io.LimitReader(conn, maxOrder)).Decode(&o) != nil {
		return // the engine has ended
	}
	var result Outcome
	work := func() error { return k.save(o) }
	if o.Stop {
		work = func() error { return k.within(k.control.Stop) }
	}
	err := work()
	if err != nil {
		result = Outcome{Error: err.Error(), DiskFull: errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT), Busy: errors.Is(err, errBusy)}
	}
	_ = json.NewEncoder(conn).Encode(result) // the engine may have ended
	if !o.Stop || err != nil {
		return
	}
	_, _ = conn.SetReadDeadline(time.Time{}), discard(conn) // until the engine has closed it or has ended
	if err := k.within(k.control.Continue); err != nil {
		k.printed.add(err.Error())
	}
}

// discard reads until the other end is closed.
func discard(conn net.Conn) error {
	_, err := io.Copy(io.Discard, conn)
	return err
}

// save writes the state of the machine, which stands still during that time.
func (k *keeper) save(o Order) (err error) {
	var files [2]*os.File
	for i, path := range []string{o.Memory, o.Device} {
		if files[i], err = os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, files[i].Close()) }()
	}
	<-k.started // the guest has got its configuration
	release, err := k.hold()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	if err := k.within(k.control.Stop); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.within(k.control.Continue)) }()
	if err := k.saveDevice(files[1]); err != nil {
		return err
	}
	if err := files[0].Truncate(k.memorySize); err != nil {
		return err
	}
	return CopyPages(files[0], 0, k.memory, 0, k.memorySize)
}

// within calls a function of the control with a deadline.
func (k *keeper) within(call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	return call(ctx)
}

// saveDevice writes the state of processors and devices to a file.
func (k *keeper) saveDevice(to *os.File) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	copied := make(chan error, 1)
	go func() {
		n, err := io.Copy(to, io.LimitReader(read, MaxDevice+1))
		if err == nil && n > MaxDevice {
			err = errors.New("the state of the devices is too large")
			_ = read.Close() // QEMU must not wait for a reader
		}
		copied <- err
	}()
	err = k.within(func(ctx context.Context) error { return k.control.Save(ctx, write) })
	// QEMU closes its copy when it has written everything. The deadline ends a wait for a QEMU that
	// was taken over.
	deadline := time.Now()
	if err == nil {
		deadline = deadline.Add(answerTime)
	}
	return errors.Join(err, write.Close(), read.SetReadDeadline(deadline), <-copied)
}

// hold stops the programs in the machine and the streams into it. The guest answers once it has read
// everything that was on its way.
func (k *keeper) hold() (release func() error, err error) {
	open, err := k.streams.Quiesce()
	if err != nil {
		return nil, err
	}
	k.marks++
	if err := k.instruct(machine.Hold(k.marks)); err != nil {
		open()
		return nil, fmt.Errorf("%w: %w", errBusy, err)
	}
	return func() error {
		defer open()
		return k.instruct(machine.Release())
	}, nil
}

// instruct sends an instruction to the guest and waits for its answer.
func (k *keeper) instruct(i machine.Instruction) error {
	line, err := json.Marshal(i)
	if err != nil {
		return err
	}
	select {
	case <-k.answers: // to an instruction that the guest answered too late
	default:
	}
	if err := k.boot.SetWriteDeadline(time.Now().Add(answerTime)); err != nil {
		return err
	}
	if _, err := k.boot.Write(append(line, '\n')); err != nil {
		return err
	}
	late := time.NewTimer(answerTime)
	defer late.Stop()
	select {
	case answer, ok := <-k.answers:
		if text, failed := strings.CutPrefix(answer, machine.Failed); failed {
			return fmt.Errorf("%.500q", text)
		}
		if !ok || answer != machine.Done {
			return errors.New("the machine has ended")
		}
		return nil
	case <-late.C:
		return errors.New("the guest does not answer")
	}
}
