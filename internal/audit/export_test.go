package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/fault"
)

// export returns the lines of an exported file.
func export(t *testing.T, l *Log, f Filter) []string {
	t.Helper()
	var out bytes.Buffer
	if err := l.Export(t.Context(), &out, f); err != nil {
		t.Fatal(err)
	}
	return slices.Collect(strings.Lines(out.String()))
}

// check verifies the lines of an exported file.
func check(t *testing.T, lines []string, key string, notes ...string) Verification {
	t.Helper()
	v, err := VerifyFile(strings.NewReader(strings.Join(lines, "")), key, notes...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// An exported file verifies by itself, whatever part of the log it contains.
func TestExportedFilesVerify(t *testing.T) {
	l := openLog(t, Options{SegmentBytes: 1500})
	var received []string
	for i := range 37 {
		fill(t, l, i, i+1)
		if i%10 == 0 {
			c, err := l.Checkpoint(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			received = append(received, c.Note)
		}
	}
	for _, f := range []Filter{
		{}, {Sandbox: "box1"}, {From: 5}, {Before: 9}, {From: 7, Before: 8}, {From: 36}, {Kinds: []Kind{Gap}}, {Limit: 3, Newest: true},
	} {
		lines := export(t, l, f)
		v := check(t, lines, l.Key())
		if want := len(readAll(t, l, f)); !v.OK || v.Entries != int64(want) {
			t.Errorf("export with filter %+v: got %+v, want OK with %d entries", f, v, want)
		}
	}
	all := export(t, l, Filter{})
	if v := check(t, all, l.Key(), received...); !v.OK || v.Checkpoints != len(received)+1 {
		t.Errorf("compared with older tree heads: got %+v, want OK", v)
	}
	other := openLog(t, Options{})
	if v := check(t, all, other.Key()); v.OK || v.Flaw != Unsigned {
		t.Errorf("checked with another key: got %+v, want %s", v, Unsigned)
	}
	if _, err := VerifyFile(strings.NewReader("{}"), l.Key()); fault.KindOf(err) != fault.Invalid {
		t.Errorf("VerifyFile of a file that is no export: got %v, want Invalid", err)
	}
}

// P30: a change, omission or exchange in an exported file is detected.
func TestVerifyFileNamesTheFirstChangedEntry(t *testing.T) {
	l := openLog(t, Options{})
	fill(t, l, 0, 30)
	for name, filter := range map[string]Filter{"all entries": {}, "one sandbox": {Sandbox: "box1"}} {
		lines := export(t, l, filter)
		const at = 6
		e, err := decode([]byte(strings.TrimSuffix(lines[at], "\n")))
		for err != nil {
			e, err = decode([]byte(strings.TrimSuffix(lines[at+1], "\n"))) // lines[at] stands for omitted entries
		}
		i := slices.IndexFunc(lines, func(s string) bool { return strings.HasPrefix(s, fmt.Sprintf(`{"seq":%d,`, e.Seq)) })
		for _, c := range []struct {
			name  string
			alter func(lines []string) []string
			flaw  Flaw
			seq   int64
		}{
			{"changed", func(s []string) []string {
				s[i] = strings.Replace(s[i], `"actor":"box"`, `"actor":"bux"`, 1)
				return s
			}, Changed, e.Seq},
			{"time changed", func(s []string) []string {
				s[i] = strings.Replace(s[i], `"time":"2`, `"time":"3`, 1)
				return s
			}, Changed, e.Seq},
			{"cut", func(s []string) []string { return s[:i+1] }, Cut, e.Seq + 1},
			{"carriage return", func(s []string) []string {
				s[i] = strings.Replace(s[i], "\n", "\r\n", 1)
				return s
			}, Changed, e.Seq},
			{"removed", func(s []string) []string { return slices.Delete(s, i, i+1) }, Missing, e.Seq},
		} {
			v := check(t, c.alter(slices.Clone(lines)), l.Key())
			if v.OK || v.Flaw != c.flaw || v.Seq != c.seq {
				t.Errorf("%s, %s: got %+v, want %s at %d", name, c.name, v, c.flaw, c.seq)
			}
		}
	}
}

// Any changed byte of an exported file is detected.
func TestVerifyFileDetectsEveryFlippedByte(t *testing.T) {
	l := openLog(t, Options{})
	fill(t, l, 0, 8)
	file := []byte(strings.Join(export(t, l, Filter{From: 1, Sandbox: "box1"}), ""))
	for i, c := range file {
		for bit := range 8 {
			file[i] = c ^ 1<<bit
			v, err := VerifyFile(bytes.NewReader(file), l.Key())
			if err == nil && v.OK && !sameMeaning(file, i, c) {
				t.Fatalf("byte %d, %q for %q in %s", i, file[i], c, file)
			}
		}
		file[i] = c
	}
}

// sameMeaning reports whether a change has no effect on the meaning of a line that is not an entry,
// because a decoder ignores the case of field names.
func sameMeaning(data []byte, i int, was byte) bool {
	begin := bytes.LastIndexByte(data[:i], '\n') + 1
	line, _, _ := bytes.Cut(data[begin:], []byte("\n"))
	if _, err := decode(line); err == nil {
		return false
	}
	original := bytes.Clone(line)
	original[i-begin] = was
	var a, b exported
	if json.Unmarshal(line, &a) != nil || json.Unmarshal(original, &b) != nil {
		return false
	}
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

// A proof can be checked by a person who has only the proof and the key.
func TestCheckProofRejectsChangedProofs(t *testing.T) {
	l := openLog(t, Options{})
	fill(t, l, 0, 33)
	for seq := range int64(33) {
		p, err := l.Prove(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		if e, err := CheckProof(p); err != nil || e.Seq != seq {
			t.Fatalf("proof of entry %d: CheckProof got %+v, %v", seq, e, err)
		}
	}
	p, err := l.Prove(t.Context(), 20)
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Prove(t.Context(), 21)
	if err != nil {
		t.Fatal(err)
	}
	for name, alter := range map[string]func(p *Proof){
		"entry":       func(p *Proof) { p.Entry = strings.Replace(p.Entry, `"n":20`, `"n":21`, 1) },
		"number":      func(p *Proof) { p.Seq = 21 },
		"hash":        func(p *Proof) { p.Hashes = other.Hashes },
		"fewer":       func(p *Proof) { p.Hashes = p.Hashes[1:] },
		"other entry": func(p *Proof) { p.Entry = other.Entry; p.Seq = 21 },
		"size":        func(p *Proof) { p.Checkpoint.Size++ },
		"note":        func(p *Proof) { p.Checkpoint.Note = strings.Replace(p.Checkpoint.Note, "\n33\n", "\n34\n", 1) },
		"key":         func(p *Proof) { p.Key = openLog(t, Options{}).Key() },
	} {
		changed := p
		changed.Hashes = slices.Clone(p.Hashes)
		alter(&changed)
		if _, err := CheckProof(changed); fault.CodeOf(err) != "proof_invalid" {
			t.Errorf("CheckProof with a changed %s: got %v, want proof_invalid", name, err)
		}
	}
	if _, err := l.Prove(t.Context(), 33); fault.KindOf(err) != fault.NotFound {
		t.Errorf("Prove of a missing entry: got %v, want NotFound", err)
	}
}
