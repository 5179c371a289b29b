package runner

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// section returns a section of a module.
func section(id byte, content string) string {
	return string(binary.AppendUvarint([]byte{id}, uint64(len(content)))) + content
}

// dataModule returns a module with sections, and a function that is not empty.
func dataModule(before, count, data string) []byte {
	return []byte("\x00asm\x01\x00\x00\x00" + section(1, "\x01\x60\x00\x00") + before + count +
		section(sectionCode, "\x01\x02\x00\x0b") + data)
}

// withMemory is the section of a function, and one of a memory of a page.
var withMemory = section(3, "\x01\x00") + section(sectionMemory, "\x01\x00\x01")

// active returns a segment for memory 0 with a constant offset.
func active(offset int32, init string) string {
	out := appendSigned([]byte{segmentActive, opI32Const}, offset)
	return string(binary.AppendUvarint(append(out, opEnd), uint64(len(init)))) + init
}

// data returns a section with segments.
func data(segments ...string) string {
	return section(sectionData, string(rune(len(segments)))+strings.Join(segments, ""))
}

// long is a content that is longer than a gap.
var long = strings.Repeat("long", maxGap)

// mergedModules lists modules whose segments are merged, with the number of segments afterwards.
var mergedModules = map[string]struct {
	module []byte
	want   int
}{
	"neighbours":           {dataModule(withMemory, "", data(active(7, "a"), active(8, "b"), active(9, "c"))), 1},
	"a small gap":          {dataModule(withMemory, "", data(active(7, long), active(7+int32(len(long))+maxGap, "b"))), 1},
	"a large gap":          {dataModule(withMemory, "", data(active(7, long), active(8+int32(len(long))+maxGap, "b"), active(9+int32(len(long))+maxGap, "c"))), 2},
	"another order":        {dataModule(withMemory, "", data(active(70, long), active(7, long[:63]), active(4000, "c"), active(4003, "d"))), 2},
	"nothing in a segment": {dataModule(withMemory, "", data(active(7, long), active(9, ""), active(pageBytes, ""), active(7+int32(len(long)), "b"))), 1},
	"only empty segments":  {dataModule(withMemory, "", data(active(7, ""), active(9, ""))), 0},
	"up to the end":        {dataModule(withMemory, "", data(active(pageBytes-2, "a"), active(pageBytes-1, "b"))), 1},
	"a maximum":            {dataModule(section(3, "\x01\x00")+section(sectionMemory, "\x01\x01\x01\x02"), "", data(active(7, "a"), active(8, "b"))), 1},
	"a long constant":      {dataModule(withMemory, "", data("\x00\x41\x87\x80\x80\x80\x00\x0b\x01a", active(8, "b"))), 1},
}

// unmergedModules lists modules whose section of segments stays as it is. Each of them is one of the
// modules above with one difference.
var unmergedModules = map[string][]byte{
	"an overlap":                dataModule(withMemory, "", data(active(7, "aa"), active(8, "b"))),
	"an overlap, later first":   dataModule(withMemory, "", data(active(8, "b"), active(7, "aa"))),
	"an overlap and neighbours": dataModule(withMemory, "", data(active(7, "aa"), active(8, "b"), active(9, "c"))),
	"one address":               dataModule(withMemory, "", data(active(7, "a"), active(7, "b"))),
	"beyond the memory":         dataModule(withMemory, "", data(active(pageBytes-1, "a"), active(pageBytes, "b"))),
	"partly beyond":             dataModule(withMemory, "", data(active(7, "a"), active(8, "b"), active(pageBytes-1, "cc"))),
	"empty beyond the memory":   dataModule(withMemory, "", data(active(7, "a"), active(8, "b"), active(pageBytes+1, ""))),
	"a negative constant":       dataModule(withMemory, "", data(active(-1, "a"), active(7, "b"), active(8, "c"))),
	"a passive segment":         dataModule(withMemory, "", data(active(7, "a"), active(8, "b"), "\x01\x01c")),
	"a numbered memory":         dataModule(withMemory, "", data("\x02\x00\x41\x07\x0b\x01a", active(8, "b"))),
	"a count of segments":       dataModule(withMemory, section(sectionDataCount, "\x02"), data(active(7, "a"), active(8, "b"))),
	"much more zeros":           dataModule(withMemory, "", data(active(7, "a"), active(7+maxGap, "b"))),
	"an offset of a global": dataModule(section(2, "\x01\x03env\x01g\x03\x7f\x00")+withMemory, "",
		data("\x00\x23\x00\x0b\x01a", active(7, "b"), active(8, "c"))),
	"an imported memory": dataModule(section(2, "\x01\x03env\x01m\x02\x00\x01")+section(3, "\x01\x00"), "",
		data(active(7, "a"), active(8, "b"))),
	"an empty memory": dataModule(section(3, "\x01\x00")+section(sectionMemory, "\x01\x00\x00"), "", data(active(0, "a"), active(1, "b"))),
}

// env is a module with a memory and a global for those that import them. The memory is not empty.
var env = []byte("\x00asm\x01\x00\x00\x00" + section(sectionMemory, "\x01\x00\x01") + section(6, "\x01\x7f\x00\x41\x05\x0b") +
	section(7, "\x02\x01m\x02\x00\x01g\x03\x00") + data(active(0, long)))

// instance returns the memory of an instance of a module, or the text of the error. The module is
// loaded with its native code if it was compiled to a file before.
func instance(t *testing.T, module, compiled []byte) (memory []byte, problem string) {
	t.Helper()
	known := &store{}
	if compiled != nil {
		var err error
		if known, err = readStore(fileOf(t, compiled)); err != nil {
			t.Fatal(err)
		}
		defer known.close()
	}
	cache, err := known.cache()
	if err != nil {
		t.Fatal(err)
	}
	ctx := withLinearMemory(t.Context())
	r := wazero.NewRuntimeWithConfig(ctx, settings().WithCompilationCache(cache).WithMemoryLimitPages(256).WithMemoryCapacityFromMax(true))
	defer r.Close(context.Background())
	var m wazero.CompiledModule
	if compiled != nil {
		m = known.load(ctx, r)
	} else if m, err = r.CompileModule(ctx, module); err != nil {
		t.Fatal(err)
	}
	if m == nil {
		t.Fatal("wazero does not take the native code for the outline")
	}
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, r); err != nil {
		t.Fatal(err)
	}
	// This is last, because wazero gives the store the code of this module too.
	if _, err := r.InstantiateWithConfig(ctx, env, wazero.NewModuleConfig().WithName("env")); err != nil {
		t.Fatal(err)
	}
	i, err := r.InstantiateModule(ctx, m, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return nil, err.Error()
	}
	// Without a memory, wazero returns an interface with a nil pointer.
	if m := i.Memory(); reflect.ValueOf(m).IsNil() {
		return nil, ""
	}
	memory, _ = i.Memory().Read(0, i.Memory().Size())
	return bytes.Clone(memory), ""
}

// segmentsOf returns the section of data segments of a module.
func segmentsOf(t *testing.T, module []byte) (content []byte) {
	t.Helper()
	for rest := module[headerBytes:]; len(rest) > 0; {
		size, used, err := number(rest[1:])
		if err != nil {
			t.Fatal(err)
		}
		if rest[0] == sectionData {
			content = rest[1+used : 1+used+size]
		}
		rest = rest[1+used+size:]
	}
	return content
}

// compareInstances compares an instance of a module with one of its outline and native code.
func compareInstances(t *testing.T, module []byte) (problem string) {
	t.Helper()
	want, problem := instance(t, module, nil)
	got, other := instance(t, nil, compileModule(t, module))
	if !bytes.Equal(got, want) {
		t.Errorf("the memory differs: %d bytes with the outline, %d without", len(got), len(want))
	}
	if other != problem {
		t.Errorf("with the outline, the error is %q, want %q", other, problem)
	}
	return problem
}

// P87: merging segments changes no memory.
func TestSegmentsAreMerged(t *testing.T) {
	for name, c := range mergedModules {
		t.Run(name, func(t *testing.T) {
			before := bytes.Clone(c.module)
			short, err := outline(c.module)
			if err != nil {
				t.Fatal(err)
			}
			parts, ok := readSegments(segmentsOf(t, short))
			if !ok || len(parts) != c.want {
				t.Errorf("the outline has %d segments, want %d", len(parts), c.want)
			}
			if !bytes.Equal(c.module, before) {
				t.Error("the module was changed")
			}
			if problem := compareInstances(t, c.module); problem != "" {
				t.Errorf("there is no instance to compare: %s", problem)
			}
		})
	}
}

// P87: segments are not merged where this could change a memory or an error.
func TestSegmentsStay(t *testing.T) {
	for name, module := range unmergedModules {
		t.Run(name, func(t *testing.T) {
			short, err := outline(module)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := segmentsOf(t, short), segmentsOf(t, module); len(want) == 0 || !bytes.Equal(got, want) {
				t.Errorf("the segments are %q, want %q", got, want)
			}
			problem := compareInstances(t, module)
			beyond := strings.Contains(name, "beyond") || strings.Contains(name, "negative") || strings.Contains(name, "empty memory")
			if beyond != strings.Contains(problem, "out of bounds") {
				t.Errorf("the error is %q", problem)
			}
		})
	}
}

// A section that cannot be read stays as it is, and so do segments at addresses of a large memory.
func TestMergeSegments(t *testing.T) {
	const all = maxPages * pageBytes
	whole := string(segmentsOf(t, mergedModules["neighbours"].module))
	for end := range len(whole) {
		if got := mergeSegments([]byte(whole[:end]), all); string(got) != whole[:end] {
			t.Errorf("the section %q becomes %q", whole[:end], got)
		}
	}
	if got := mergeSegments([]byte(whole+"x"), all); string(got) != whole+"x" {
		t.Errorf("the section with one more byte becomes %q", got)
	}
	high := "\x02" + active(-2, "y") + active(-3, "x")
	if got, want := string(mergeSegments([]byte(high), all)), "\x01"+active(-3, "xy"); got != want {
		t.Errorf("the highest addresses: %q, want %q", got, want)
	}
	if got := string(mergeSegments([]byte(high), all-2)); got != high {
		t.Errorf("addresses beyond the memory: %q, want %q", got, high)
	}
	for _, n := range []int32{0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8192, -8193, 1 << 30, 1<<31 - 1, -1 << 31} {
		written := appendSigned(nil, n)
		if got, used, ok := signed(append(written, 0xff)); !ok || got != n || used != len(written) {
			t.Errorf("%d is read as %d of %d bytes, %t", n, got, used, ok)
		}
	}
}

// P87: a program in Go has the same memory with less than a hundredth of its segments.
func TestSegmentsOfGo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hello.wasm")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "../../../../bench/testdata/hello")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=wasip1", "GOARCH=wasm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	module, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	short, err := outline(module)
	if err != nil {
		t.Fatal(err)
	}
	before, ok := readSegments(segmentsOf(t, module))
	after, okAfter := readSegments(segmentsOf(t, short))
	if !ok || !okAfter || len(before) < 1000 || len(after) == 0 || len(after) > len(before)/100 {
		t.Errorf("the module has %d segments, and its outline %d", len(before), len(after))
	}
	// Functions do not change the memory of an instance that has not started. Without their code,
	// the module is compiled much faster.
	unmerged := bytes.Replace(short, dataSection(segmentsOf(t, short)), dataSection(segmentsOf(t, module)), 1)
	got, problem := instance(t, short, nil)
	want, other := instance(t, unmerged, nil)
	if problem != "" || other != "" || len(want) == 0 || !bytes.Equal(got, want) {
		t.Errorf("the memory differs: %d bytes with the outline, %d without; %s %s", len(got), len(want), problem, other)
	}
}

// dataSection returns a section of segments.
func dataSection(content []byte) []byte { return []byte(section(sectionData, string(content))) }
