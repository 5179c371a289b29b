package trim

import (
	"os"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostarch"
)

const page = hostarch.PageSize

// createMemory creates a file like gVisor's memory file, in which only the touched pages have
// content.
func createMemory(t *testing.T, pages int, touched ...int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "memory")
	t.Cleanup(func() { file.Close() })
	if err := file.Truncate(int64(pages) * page); err != nil {
		t.Fatal(err)
	}
	mapped, err := unix.Mmap(fd, 0, pages*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mapped) })
	for _, n := range touched {
		mapped[n*page] = 1
	}
	return fd
}

func TestHolesBetweenTouchedPages(t *testing.T) {
	fd := createMemory(t, 100, 20, 21, 40, 44, 80)
	for _, c := range []struct {
		name       string
		start, end uint64
		want       []hole
	}{
		{"all", 0, 100, []hole{{0, 20}, {22, 40}, {45, 80}, {81, 100}}}, // the three pages between 40 and 44 are too few
		{"a part", 10, 60, []hole{{10, 20}, {22, 40}, {45, 60}}},
		{"nothing touched", 50, 70, []hole{{50, 70}}},
		{"nothing else", 20, 22, nil},
		{"nothing", 30, 30, nil},
		{"just enough", 22, 22 + minHole/page, []hole{{22, 22 + minHole/page}}},
		{"too few", 22, 22 + minHole/page - 1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := (&scanner{fd: fd}).holes(c.start*page, c.end*page)
			if err != nil {
				t.Fatal(err)
			}
			for i := range got {
				got[i] = hole{got[i].start / page, got[i].end / page}
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got the holes %v, want %v", got, c.want)
			}
		})
	}
}

// What a scanner remembers of one area gives the same holes in the next one, whichever areas follow
// each other.
func TestScannerRemembersParts(t *testing.T) {
	fd := createMemory(t, 100, 20, 21, 40, 44, 60, 61, 62, 80)
	areas := [][2]uint64{{0, 10}, {5, 20}, {20, 21}, {21, 22}, {22, 40}, {30, 61}, {61, 62}, {62, 63}, {63, 100}, {81, 100}}
	for _, first := range areas {
		for _, second := range areas {
			file := scanner{fd: fd}
			if _, err := file.holes(first[0]*page, first[1]*page); err != nil {
				t.Fatal(err)
			}
			got, err := file.holes(second[0]*page, second[1]*page)
			want, wantErr := (&scanner{fd: fd}).holes(second[0]*page, second[1]*page)
			if err != nil || wantErr != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("after %v: the holes of %v are %v, want %v; errors %v, %v", first, second, got, want, err, wantErr)
			}
		}
	}
	file := scanner{fd: fd}
	if _, err := file.holes(90*page, 100*page); err != nil {
		t.Fatal(err)
	}
	if got, err := file.holes(100*page, 120*page); err == nil {
		t.Errorf("got the holes %v beyond the end of the file, want an error", got)
	}
}

// Memory beyond the end of the file does not count.
func TestHolesBeyondEndOfFile(t *testing.T) {
	if got, err := (&scanner{fd: createMemory(t, 10)}).holes(20*page, 40*page); err == nil {
		t.Errorf("got the holes %v beyond the end of the file, want an error", got)
	}
}

// A page of zeros is not a hole, because gVisor itself finds those pages.
func TestPagesOfZerosAreNoHoles(t *testing.T) {
	fd := createMemory(t, 32)
	if _, err := unix.Pwrite(fd, make([]byte, 32*page), 0); err != nil {
		t.Fatal(err)
	}
	if got, err := (&scanner{fd: fd}).holes(0, 32*page); err != nil || got != nil {
		t.Errorf("got the holes %v, %v; want none", got, err)
	}
}

func TestWithinReturnsParts(t *testing.T) {
	in := func(start, end hostarch.Addr) span { return span{Start: start, End: end} }
	areas := []area{{in(10, 20), 100}, {in(20, 60), 300}, {in(90, 99), 700}}
	got := within(areas, []span{in(0, 5), in(15, 30), in(40, 50), in(80, 100)})
	want := []area{{in(15, 20), 105}, {in(20, 30), 300}, {in(40, 50), 320}, {in(90, 99), 700}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got the parts %v, want %v", got, want)
	}
}

func TestPrivateReturnsField(t *testing.T) {
	value := &struct{ inside int }{7}
	if got, err := private[int](value, "inside"); err != nil || *got != 7 {
		t.Errorf("got %v, %v; want 7", got, err)
	}
	if _, err := private[string](value, "inside"); err == nil {
		t.Error("a field of another type was accepted")
	}
	if _, err := private[int](value, "outside"); err == nil {
		t.Error("a field that does not exist was accepted")
	}
}
