package enginetest

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// recorder is a testing.TB whose result is inspected and not reported. It is for a rule that is
// waived or that must fail for a defective engine.
type recorder struct {
	testing.TB
	ctx  context.Context
	hang time.Duration

	mu       sync.Mutex
	failed   bool
	skipped  bool
	log      []string
	cleanups []func()
}

// record runs a test, waits for its end and returns its result. Waits in the test time out after
// hang.
func record(t testing.TB, hang time.Duration, test func(t testing.TB)) *recorder {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &recorder{TB: t, ctx: ctx, hang: hang}
	r.inGoroutine(func() { test(r) })
	cancel()
	for {
		r.mu.Lock()
		n := len(r.cleanups)
		if n == 0 {
			r.mu.Unlock()
			return r
		}
		last := r.cleanups[n-1]
		r.cleanups = r.cleanups[:n-1]
		r.mu.Unlock()
		r.inGoroutine(last)
	}
}

// inGoroutine runs a function in a goroutine that FailNow may end.
func (r *recorder) inGoroutine(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.note("panic: " + fmt.Sprint(p))
				r.Fail()
			}
		}()
		do()
	}()
	<-done
}

// passed reports whether the test ended without a failure or skip.
func (r *recorder) passed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.failed && !r.skipped
}

// text returns the log of the test.
func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.log, "\n")
}

// note adds a line to the log.
func (r *recorder) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log = append(r.log, text)
}

// The following methods implement testing.TB. The embedded real test implements the others.

// Hang implements hosttest.ShortHang.
func (r *recorder) Hang() time.Duration { return r.hang }

func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) FailNow() {
	r.Fail()
	runtime.Goexit()
}

func (r *recorder) Log(args ...any)                 { r.note(fmt.Sprintln(args...)) }
func (r *recorder) Logf(format string, args ...any) { r.note(fmt.Sprintf(format, args...)) }

func (r *recorder) Error(args ...any)                 { r.Log(args...); r.Fail() }
func (r *recorder) Errorf(format string, args ...any) { r.Logf(format, args...); r.Fail() }
func (r *recorder) Fatal(args ...any)                 { r.Log(args...); r.FailNow() }
func (r *recorder) Fatalf(format string, args ...any) { r.Logf(format, args...); r.FailNow() }

func (r *recorder) SkipNow() {
	r.mu.Lock()
	r.skipped = true
	r.mu.Unlock()
	runtime.Goexit()
}

func (r *recorder) Skip(args ...any)                 { r.Log(args...); r.SkipNow() }
func (r *recorder) Skipf(format string, args ...any) { r.Logf(format, args...); r.SkipNow() }

func (r *recorder) Skipped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.skipped
}
