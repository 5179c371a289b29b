// Package clock owns an additional reading of a kernel's clock. After it, programs can read the
// time without a system call; without it, they can do so only a second after the start.
package clock

import (
	"errors"
	"reflect"
	_ "unsafe" // for go:linkname

	sentry "gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sync"
)

// A kernel compares its clock with the processor's counter once when it starts or is restored, and
// again after a second. A single reading gives no rate, so until the second one every request for
// the time is a system call. These are a quarter of all calls that the guest makes until it is
// ready. An additional reading after a few milliseconds gives the rate with an error of a few
// millionths, which the kernel's later readings correct.

// Calibrate reads the clock of a kernel whose tasks run, so that programs can compute the time.
func Calibrate(keeper *sentry.Timekeeper) error {
	fields := reflect.ValueOf(keeper).Elem()
	lock, page := fields.FieldByName("updateMu"), fields.FieldByName("params")
	if !lock.IsValid() || lock.Type() != reflect.TypeFor[sync.Mutex]() {
		return errors.New("this version of gVisor has an unknown type of clock lock")
	}
	if !page.IsValid() || page.Type() != reflect.TypeFor[*sentry.VDSOParamPage]() {
		return errors.New("this version of gVisor has an unknown type of clock page")
	}
	mu := (*sync.Mutex)(lock.Addr().UnsafePointer())
	mu.Lock()
	defer mu.Unlock()
	if page.IsNil() {
		return errors.New("the clock was not started")
	}
	update(keeper, false)
	return nil
}

// update reads the clock and writes the data from which programs compute the time. The caller holds
// the lock.
//
//go:linkname update gvisor.dev/gvisor/pkg/sentry/kernel.(*Timekeeper).update
func update(keeper *sentry.Timekeeper, parked bool)
