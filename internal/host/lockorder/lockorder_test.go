package lockorder_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/crannog/crannog/internal/host/lockorder"
)

type (
	outer struct{}
	inner struct{}
)

func (outer) Rank() (int, string) { return 1, "outer" }
func (inner) Rank() (int, string) { return 2, "inner" }

// panicText returns the text with which a function panics, or "".
func panicText(do func()) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = p.(string)
		}
	}()
	do()
	return ""
}

// lockAndUnlock locks and unlocks l.
func lockAndUnlock(l sync.Locker) {
	l.Lock()
	defer l.Unlock()
}

func TestLocksInOrderDoNotPanic(t *testing.T) {
	var a lockorder.RWMutex[outer]
	var b lockorder.Mutex[inner]
	if text := panicText(func() {
		a.Lock()
		lockAndUnlock(&b)
		a.Unlock()
		a.RLock()
		b.Lock()
		a.RUnlock() // locks may be released in any order
		b.Unlock()
		leave := lockorder.Enter[outer]()
		lockAndUnlock(&b)
		var group sync.WaitGroup
		group.Go(leave) // another goroutine may release
		group.Wait()
		lockAndUnlock(&a)
	}); text != "" {
		t.Errorf("locks in order: got the panic %q, want none", text)
	}
	// Another goroutine's locks do not matter.
	b.Lock()
	var group sync.WaitGroup
	group.Go(func() { lockAndUnlock(&a) })
	group.Wait()
	b.Unlock()
}

// With the race detector each wrong order is found, although no goroutine waits.
func TestWrongOrdersPanic(t *testing.T) {
	if !lockorder.Checked {
		return // only the test with the detector checks this
	}
	for name, do := range map[string]func(){
		"inner before outer": func() {
			var a lockorder.Mutex[outer]
			var b lockorder.Mutex[inner]
			b.Lock()
			defer b.Unlock()
			a.Lock()
		},
		"two of one rank": func() {
			var a, b lockorder.RWMutex[outer]
			a.RLock()
			defer a.RUnlock()
			b.RLock()
		},
		"inner before a lock of another kind": func() {
			var b lockorder.Mutex[inner]
			b.Lock()
			defer b.Unlock()
			lockorder.Enter[outer]()
		},
	} {
		if text := panicText(do); !strings.HasPrefix(text, "lockorder: outer is taken while ") {
			t.Errorf("%s: got the panic %q, want one that names the outer lock", name, text)
		}
	}
	var a lockorder.Mutex[outer]
	if text := panicText(a.Lock); text != "" {
		t.Errorf("after the panics: %s", text)
	}
}
