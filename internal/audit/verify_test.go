package audit

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// sample returns the directory of a closed log with n entries in several segments, and its tree
// head.
func sample(t testing.TB, n int) (dir string, note string) {
	t.Helper()
	l := openLog(t, Options{SegmentBytes: 1500})
	for i := range n {
		fill(t, l, i, i+1)
	}
	c, err := l.Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.dir, c.Note
}

func copyDir(t testing.TB, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "record")
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return os.Chmod(path, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func verify(t testing.TB, dir string, against ...string) Verification {
	t.Helper()
	l := openLog(t, Options{Dir: dir, Log: quiet()})
	defer l.Close()
	v, err := l.Verify(t.Context(), against...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// allLines returns all lines of a log, and the number of lines in each segment.
func allLines(t testing.TB, dir string) (all [][]byte, counts []int) {
	t.Helper()
	segments, err := listSegments(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range segments {
		data, err := os.ReadFile(filepath.Join(dir, segmentName(s)))
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.SplitAfter(data, []byte("\n"))
		lines = lines[:len(lines)-1]
		all, counts = append(all, lines...), append(counts, len(lines))
	}
	return all, counts
}

// write puts lines into the segments, as many as counts has for each. The last segment gets the
// remaining lines.
func write(t testing.TB, dir string, all [][]byte, counts []int) {
	t.Helper()
	segments, err := listSegments(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range segments {
		n := min(counts[i], len(all))
		if i == len(segments)-1 {
			n = len(all)
		}
		if err := os.WriteFile(filepath.Join(dir, segmentName(s)), bytes.Join(all[:n], nil), 0o600); err != nil {
			t.Fatal(err)
		}
		all = all[n:]
	}
}

// rewrite computes hashes and tree for changed lines, like an attacker who can write the files but
// has no key.
func rewrite(t testing.TB, dir string, all [][]byte, counts []int) {
	t.Helper()
	tree, prev := &hashTree{}, ""
	for i, line := range all {
		e, err := decode(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			t.Fatal(err)
		}
		p, err := encode(Draft{Time: e.Time, Kind: e.Kind, Sandbox: e.Sandbox, Actor: e.Actor, Data: e.Data, Source: e.Source, At: e.At}, e.Time)
		if err != nil {
			t.Fatal(err)
		}
		newLine := p.line(nil, int64(i), prev)
		prev = hashOf(newLine)
		if err := tree.add(int64(i), tlog.RecordHash(newLine)); err != nil {
			t.Fatal(err)
		}
		all[i] = append(newLine, '\n')
	}
	write(t, dir, all, counts)
	if err := os.WriteFile(filepath.Join(dir, hashesName), tree.bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// P30: an entry cannot be changed, removed, moved or cut off without Verify naming it.
func TestVerifyNamesTheFirstChangedEntry(t *testing.T) {
	const n, at = 40, 17
	dir, _ := sample(t, n)
	if v := verify(t, dir); !v.OK || v.Entries != n || v.Checkpoints == 0 || v.Uncovered != 0 {
		t.Fatalf("the log as it was written: %+v", v)
	}
	change := func(l []byte) []byte { return bytes.Replace(l, []byte(`"n":17`), []byte(`"n":71`), 1) }
	for _, c := range []struct {
		name  string
		alter func(t *testing.T, dir string, all [][]byte, counts []int)
		seq   int64
		flaw  Flaw
	}{
		{"changed", func(t *testing.T, dir string, all [][]byte, counts []int) {
			all[at] = change(all[at])
			write(t, dir, all, counts)
		}, at, Changed},
		{"changed, with its hash in the tree", func(t *testing.T, dir string, all [][]byte, counts []int) {
			all[at] = change(all[at])
			write(t, dir, all, counts)
			os.Remove(filepath.Join(dir, hashesName)) // computed again from the lines
		}, at, Changed},
		{"removed", func(t *testing.T, dir string, all [][]byte, counts []int) {
			write(t, dir, slices.Delete(all, at, at+1), counts)
		}, at, Missing},
		{"removed, without a tree", func(t *testing.T, dir string, all [][]byte, counts []int) {
			write(t, dir, slices.Delete(all, at, at+1), counts)
			os.Remove(filepath.Join(dir, hashesName))
		}, at, Missing},
		{"the first removed", func(t *testing.T, dir string, all [][]byte, counts []int) {
			write(t, dir, all[1:], counts)
		}, 0, Missing},
		{"a file removed", func(t *testing.T, dir string, all [][]byte, counts []int) {
			segments, _ := listSegments(dir)
			os.Remove(filepath.Join(dir, segmentName(segments[1])))
		}, -1, Missing},
		{"the first file removed", func(t *testing.T, dir string, all [][]byte, counts []int) {
			os.Remove(filepath.Join(dir, segmentName(0)))
		}, 0, Missing},
		{"exchanged", func(t *testing.T, dir string, all [][]byte, counts []int) {
			all[at], all[at+1] = all[at+1], all[at]
			write(t, dir, all, counts)
		}, at, Reordered},
		{"exchanged with a later one", func(t *testing.T, dir string, all [][]byte, counts []int) {
			all[at], all[n-1] = all[n-1], all[at]
			write(t, dir, all, counts)
		}, at, Reordered},
		{"twice", func(t *testing.T, dir string, all [][]byte, counts []int) {
			write(t, dir, slices.Insert(all, at+1, all[at]), counts)
		}, at + 1, Reordered},
		{"added", func(t *testing.T, dir string, all [][]byte, counts []int) {
			write(t, dir, slices.Insert(all, at, change(all[at])), counts)
		}, at, Changed},
		{"cut", func(t *testing.T, dir string, all [][]byte, counts []int) {
			write(t, dir, all[:n-2], counts)
		}, n - 2, Cut},
		{"lines and tree cut", func(t *testing.T, dir string, all [][]byte, counts []int) {
			write(t, dir, all[:n-2], counts)
			os.Truncate(filepath.Join(dir, hashesName), tlog.StoredHashCount(n-2)*tlog.HashSize)
		}, n - 2, Cut},
		{"the last changed", func(t *testing.T, dir string, all [][]byte, counts []int) {
			all[n-1] = bytes.Replace(all[n-1], []byte(`"box"`), []byte(`"bax"`), 1)
			write(t, dir, all, counts)
		}, n - 1, Changed},
		{"rewritten without the key", func(t *testing.T, dir string, all [][]byte, counts []int) {
			all[at] = change(all[at])
			rewrite(t, dir, all, counts)
		}, 0, Forked},
		{"rewritten and cut", func(t *testing.T, dir string, all [][]byte, counts []int) {
			rewrite(t, dir, slices.Delete(all, at, at+1), counts)
		}, n - 1, Cut},
		{"a tree head of another key", func(t *testing.T, dir string, all [][]byte, counts []int) {
			other, _ := sample(t, 3)
			data, _ := os.ReadFile(filepath.Join(other, checkpointsName))
			f, _ := os.OpenFile(filepath.Join(dir, checkpointsName), os.O_APPEND|os.O_WRONLY, 0)
			f.Write(data)
			f.Close()
		}, 0, Unsigned},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := copyDir(t, dir)
			all, counts := allLines(t, dir)
			want := c.seq
			if want < 0 {
				want = int64(counts[0])
			}
			c.alter(t, dir, all, counts)
			v := verify(t, dir)
			if v.OK || v.Flaw != c.flaw || v.Seq != want {
				t.Errorf("got %+v, want %s at %d", v, c.flaw, want)
			}
			// The log accepts no entries, because the next tree head would sign the damage. Damage
			// that the ends of the files do not show is found only by Verify.
			l := openLog(t, Options{Dir: dir, Log: quiet()})
			defer l.Close()
			if c.flaw == Cut || c.flaw == Forked || c.flaw == Unsigned {
				if err := l.Append(t.Context(), draft(0)); err == nil {
					t.Error("Append to a damaged log returned no error")
				}
			}
		})
	}
}

// P30: any changed byte is found, and the entry that contains it is named.
func TestVerifyDetectsEveryFlippedByte(t *testing.T) {
	dir, _ := sample(t, 7)
	segments, err := listSegments(dir)
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, s := range segments {
		path := filepath.Join(dir, segmentName(s))
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		seq := s
		for i, c := range data {
			want := seq
			if c == '\n' {
				seq++
			}
			// Change each byte once, and the ends of lines with each kind of change.
			flips := []byte{1 << rand.IntN(8)}
			if c == '\n' {
				flips = []byte{1, '\n' ^ '\r', '\n' ^ ' ', 0x80}
			} else if i%7 == 0 {
				flips = append(flips, c^'\n')
			}
			for _, flip := range flips {
				tried++
				data[i] = c ^ flip
				if err := os.WriteFile(path, data, 0o600); err != nil {
					t.Fatal(err)
				}
				v := verify(t, dir)
				if v.OK || v.Seq != want {
					t.Fatalf("byte %d of %s, %q for %q: %+v, want entry %d", i, segmentName(s), data[i], c, v, want)
				}
			}
			data[i] = c
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if v := verify(t, dir); !v.OK {
		t.Errorf("restored after %d changes: got %+v, want OK", tried, v)
	}
}

// P30: the holder of the key can write another history, but that does not match an earlier tree
// head.
func TestOlderTreeHeadDetectsForkByKeyHolder(t *testing.T) {
	dir, received := sample(t, 20)
	all, counts := allLines(t, dir)
	all[5] = bytes.Replace(all[5], []byte(`"n":5`), []byte(`"n":6`), 1)
	rewrite(t, dir, all, counts)
	if err := os.Remove(filepath.Join(dir, checkpointsName)); err != nil {
		t.Fatal(err)
	}
	l := openLog(t, Options{Dir: dir})
	fill(t, l, 20, 25)
	if _, err := l.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The log is consistent in itself: only a copy of a tree head elsewhere shows the difference.
	if v, err := l.Verify(t.Context()); err != nil || !v.OK {
		t.Fatalf("Verify without an older tree head: got %+v, %v, want OK", v, err)
	}
	v, err := l.Verify(t.Context(), received)
	if err != nil || v.OK || v.Flaw != Forked {
		t.Errorf("Verify with an older tree head: got %+v, %v, want %s", v, err, Forked)
	}
	if _, _, err := openCheckpoint(received, l.verifier); err != nil {
		t.Errorf("the older tree head is signed by the same key: %v", err)
	}
}

// A tree head is a signed note that other tools can read.
func TestTreeHeadIsSignedNote(t *testing.T) {
	l := openLog(t, Options{})
	fill(t, l, 0, 3)
	c, err := l.Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := note.NewVerifier(l.Key())
	if err != nil {
		t.Fatal(err)
	}
	n, err := note.Open([]byte(c.Note), note.VerifierList(verifier))
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%s\n3\n%s\n", verifier.Name(), c.Root)
	if n.Text != want || !strings.HasPrefix(verifier.Name(), "crannog/") || c.Size != 3 {
		t.Errorf("text of the note: got %q, want %q", n.Text, want)
	}
	if again, err := l.Checkpoint(t.Context()); err != nil || again != c {
		t.Errorf("Checkpoint without new entries: got %+v, %v, want %+v", again, err, c)
	}
}

// After Truncate, the log states which entries were dropped, and the remaining entries match all
// earlier tree heads.
func TestTruncate(t *testing.T) {
	l := openLog(t, Options{SegmentBytes: 1500})
	base := time.Now().Add(-48 * time.Hour)
	var received []string
	for i := range 40 {
		d := draft(i)
		d.Time = base.Add(time.Duration(i) * time.Hour)
		if err := l.Append(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if i%9 == 0 {
			c, err := l.Checkpoint(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			received = append(received, c.Note)
		}
	}
	readAll(t, l, Filter{})
	if err := l.Truncate(t.Context(), base.Add(20*time.Hour)); err != nil {
		t.Fatal(err)
	}
	remaining := readAll(t, l, Filter{})
	if remaining[0].Seq < 10 || remaining[0].Seq > 20 || remaining[len(remaining)-1].Kind != Truncated {
		t.Fatalf("entries %d to %d remain", remaining[0].Seq, remaining[len(remaining)-1].Seq)
	}
	v, err := l.Verify(t.Context(), received...)
	if err != nil || !v.OK || v.First != remaining[0].Seq || v.Checkpoints < len(received) {
		t.Errorf("Verify after Truncate: got %+v, %v, want OK from entry %d on", v, err, remaining[0].Seq)
	}
	if _, err := l.Prove(t.Context(), remaining[0].Seq); err != nil {
		t.Error(err)
	}
	if _, err := l.Prove(t.Context(), 0); err == nil {
		t.Error("Prove of a dropped entry returned no error")
	}
	fill(t, l, 0, 20)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	os.Remove(filepath.Join(l.dir, indexName))
	if v := verify(t, l.dir, received...); !v.OK {
		t.Errorf("Verify with earlier tree heads: got %+v, want OK", v)
	}
	// No more entries may be missing than the entry states.
	segments, err := listSegments(l.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(l.dir, segmentName(segments[0]))); err != nil {
		t.Fatal(err)
	}
	if v := verify(t, l.dir); v.OK || v.Flaw != Missing {
		t.Errorf("one more segment removed: got %+v, want %s", v, Missing)
	}
}

// The read position of a source outlives its entries: otherwise its lines would be ingested again,
// and be in the log twice.
func TestTruncateKeepsPositions(t *testing.T) {
	l := openLog(t, Options{SegmentBytes: 1500})
	past := time.Now().Add(-48 * time.Hour)
	if err := l.Append(t.Context(), Draft{Time: past, Kind: Flow, Sandbox: "box1", Source: "net/box1", At: 7}); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		d := draft(i)
		d.Time = past
		if err := l.Append(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	// Nothing has been read so far.
	if err := l.Truncate(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if first, _, err := l.extent(); err != nil || first == 0 {
		t.Fatalf("the first entry is still %d, %v", first, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, Options{Dir: l.dir})
	if at, err := l.Position(t.Context(), "net/box1"); at != 7 || err != nil {
		t.Errorf("Position after Truncate: got %d, %v, want 7", at, err)
	}
}

// When a segment is full, old segments that exceed KeepBytes are dropped.
func TestSegmentsBeyondKeepBytesAreDropped(t *testing.T) {
	l := openLog(t, Options{SegmentBytes: 2000, KeepBytes: 10_000})
	for i := range 200 {
		fill(t, l, i, i+1)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	segments, err := listSegments(l.dir)
	if err != nil {
		t.Fatal(err)
	}
	var total int64
	for _, s := range segments {
		info, err := os.Stat(filepath.Join(l.dir, segmentName(s)))
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if segments[0] == 0 || total > 15_000 {
		t.Errorf("the log begins at entry %d and has %d bytes, want dropped segments and at most 15,000 bytes", segments[0], total)
	}
	if v := verify(t, l.dir); !v.OK {
		t.Errorf("Verify: got %+v, want OK", v)
	}
}
