package keeper

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"

	"github.com/crannog/crannog/internal/engine/microvm/machine"
)

// seedBytes is the number of random bytes that a restored machine receives.
const seedBytes = 64

// makeMemory makes the file of the machine's memory, with the content of the saved state if there is
// one.
func (k *keeper) makeMemory(size int64) (err error) {
	if k.memory, err = newMemory(size); err != nil {
		return err
	}
	k.memorySize = size
	if k.state.memory == nil {
		return nil
	}
	return errors.Join(CopyPages(k.memory, 0, k.state.memory, 0, size), k.state.memory.Close())
}

// restore makes the machine continue from the saved state. The guest first gets a new clock and new
// random bytes; its configuration follows.
func (k *keeper) restore(ctx context.Context) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	go func() {
		_, _ = io.Copy(write, io.LimitReader(k.state.device, MaxDevice)) // QEMU reports a state that is incomplete
		_, _ = write.Close(), k.state.device.Close()
	}()
	if err := k.control.Load(ctx, read); err != nil {
		return err
	}
	if err := k.control.Continue(ctx); err != nil {
		return err
	}
	seed := make([]byte, seedBytes)
	_, _ = rand.Read(seed) // it does not fail
	line, err := json.Marshal(machine.Renew(time.Now(), seed))
	if err != nil {
		return err
	}
	_, err = k.boot.Write(append(line, '\n'))
	return err
}
