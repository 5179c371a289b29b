package mcpserver

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

// Input that a program does not read is stored once, however often it is sent: an agent in a loop
// must not fill the server's memory.
func TestUnreadInputIsStoredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := io.Pipe()
		j := &job{input: to, feeding: make(chan struct{}, 1), done: make(chan struct{})}
		for i, text := range []string{"one\n", "two\n", "three\n"} {
			err := j.feed(t.Context(), text, false)
			if fault.CodeOf(err) != "input_not_read" || (i == 0) != strings.Contains(err.Error(), "it is sent when it does") {
				t.Errorf("%q: %v", text, err)
			}
		}
		got := make(chan string)
		go func() {
			all, err := io.ReadAll(from)
			if err != nil {
				t.Error(err)
			}
			got <- string(all)
		}()
		synctest.Wait()
		if err := j.feed(t.Context(), "four\n", true); err != nil {
			t.Error(err)
		}
		if all := <-got; all != "one\nfour\n" {
			t.Errorf("the program read %q", all)
		}
		// A job that has ended does not block another.
		close(j.done)
		started := time.Now()
		if err := j.feed(t.Context(), "five\n", false); err != nil && fault.CodeOf(err) != "input_closed" || time.Since(started) > 0 {
			t.Errorf("after the end: %v", err)
		}
	})
}
