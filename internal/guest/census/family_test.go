package census_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/guest/census"
)

// procOf creates a directory like /proc with processes, each with its number, its parent, its group
// and its start time.
func procOf(t *testing.T, all ...[4]int) string {
	t.Helper()
	dir := t.TempDir()
	for _, p := range all {
		sub := filepath.Join(dir, strconv.Itoa(p[0]))
		if err := os.Mkdir(sub, 0o700); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%d (a name) S %d %d 0 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 %d 0 5 0\n", p[0], p[1], p[2], p[3])
		if err := os.WriteFile(filepath.Join(sub, "stat"), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// numbers returns the PIDs of processes.
func numbers(all []census.Member) (pids []int) {
	for _, p := range all {
		pids = append(pids, p.PID)
	}
	return pids
}

func TestFamilyHasDescendantsAndGroup(t *testing.T) {
	proc := procOf(t,
		[4]int{1, 0, 1, 10}, [4]int{20, 1, 20, 100}, [4]int{21, 1, 21, 110}, [4]int{22, 20, 20, 120},
		[4]int{5, 22, 5, 250},  // a grandchild with a lower number, in a group of its own
		[4]int{23, 1, 20, 130}, // an orphan of the group
	)
	family, err := census.Family(proc, 20, nil)
	if err != nil {
		t.Fatal(err)
	}
	if family[0].PID != 20 {
		t.Errorf("first member: got %d, want 20", family[0].PID)
	}
	got := numbers(family)
	slices.Sort(got)
	if want := []int{5, 20, 22, 23}; !slices.Equal(got, want) {
		t.Errorf("Family: got %v, want %v", got, want)
	}
	at := slices.IndexFunc(family, func(p census.Member) bool { return p.PID == 5 })
	if d := census.Between(family[0], family[at]); d != 1500*time.Millisecond {
		t.Errorf("Between: got %s, want 1.5s", d)
	}
	if none, err := census.Family(proc, 99, func(int) bool { return true }); err != nil || len(none) != 0 {
		t.Errorf("Family of a missing process: got %v, %v, want none", none, err)
	}
}

// The descendants of a process for which belongs returns true are in the family too.
func TestFamilyHasBelongingProcesses(t *testing.T) {
	proc := procOf(t,
		[4]int{1, 0, 1, 10}, [4]int{20, 1, 20, 100}, [4]int{30, 1, 30, 110}, [4]int{31, 30, 31, 120}, [4]int{40, 1, 40, 130},
	)
	marked := func(pid int) bool { return pid == 30 }
	family, err := census.Family(proc, 20, marked)
	if got := numbers(family); err != nil || !slices.Equal(got, []int{20, 30, 31}) {
		t.Errorf("Family: got %v, %v, want 20, 30 and 31", got, err)
	}
	belonging, err := census.Belonging(proc, marked)
	if got := numbers(belonging); err != nil || !slices.Equal(got, []int{30}) {
		t.Errorf("Belonging: got %v, %v, want 30", got, err)
	}
}

func TestMembers(t *testing.T) {
	proc := procOf(t, [4]int{1, 0, 1, 10}, [4]int{20, 1, 20, 100}, [4]int{22, 20, 20, 120}, [4]int{24, 20, 24, 130})
	members, err := census.Members(proc, 20)
	if got := numbers(members); err != nil || !slices.Equal(got, []int{20, 22}) {
		t.Errorf("Members: got %v, %v, want 20 and 22", got, err)
	}
}
