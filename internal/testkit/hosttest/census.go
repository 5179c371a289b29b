package hosttest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Host counts the resources that sandboxes of a state directory could leave behind, for any engine:
// goroutines and descriptors of this process, mounts, loop devices and named sockets of this host,
// and files in each directory of the state.
func Host(t testing.TB, dir string) map[string]int {
	t.Helper()
	n := map[string]int{"goroutines": runtime.NumGoroutine(), "descriptors": len(Descriptors(t, os.Getpid()))}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed during the walk
		}
		if err != nil || path == dir {
			return err
		}
		in, _, _ := strings.Cut(strings.TrimPrefix(path, dir+"/"), "/")
		n["files: "+in]++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// Unlike mounts, loop devices of other mount namespaces are visible too.
	devices, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, device := range devices {
		if backing, err := os.ReadFile(device); err == nil && strings.HasPrefix(string(backing), dir+"/") {
			n["loop devices"]++
		}
	}
	for _, table := range []string{"/proc/self/mountinfo", "/proc/net/unix"} {
		data, err := os.ReadFile(table)
		if err != nil {
			t.Fatal(err)
		}
		n[table] = strings.Count(string(data), dir)
	}
	return n
}

// Grown lists the counts that have grown between two calls of Host.
func Grown(before, after map[string]int) (list []string) {
	for _, k := range slices.Sorted(maps.Keys(after)) {
		if after[k] > before[k] {
			list = append(list, fmt.Sprintf("%s: %d, before %d", k, after[k], before[k]))
		}
	}
	return list
}
