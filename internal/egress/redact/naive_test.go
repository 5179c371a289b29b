package redact

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// naive is a slow reference implementation without an automaton. It compares every position of the
// text with every form.
type naive struct {
	plain, wrapped [][]byte
}

func newNaive(values ...[]byte) naive {
	var n naive
	for _, v := range values {
		n.plain = append(n.plain, plainForms(v)...)
		n.wrapped = append(n.wrapped, wrappedForms(v)...)
	}
	return n
}

// separatorsOf returns for each byte whether it may be inside a wrapped form.
func separatorsOf(text []byte) []bool {
	out := make([]bool, len(text))
	escaped := false
	for i, b := range text {
		out[i] = strings.IndexByte("\n\r \t\\", b) >= 0 || escaped && strings.IndexByte("nrt", b) >= 0
		escaped = b == '\\' && !escaped
	}
	return out
}

// matches returns the ranges of complete values.
func (n naive) matches(text []byte) [][2]int {
	var out [][2]int
	separator := separatorsOf(text)
	for i := range text {
		for _, f := range n.plain {
			if bytes.HasPrefix(text[i:], f) {
				out = append(out, [2]int{i, i + len(f)})
			}
		}
		for _, f := range n.wrapped {
			letters, others := 0, 0
			for j := i; j < len(text) && letters < len(f); j++ {
				if separator[j] {
					if letters == 0 {
						break
					}
					others++
					continue
				}
				if text[j] != f[letters] {
					break
				}
				if letters++; letters == len(f) && others <= letters {
					out = append(out, [2]int{i, j + 1})
				}
			}
		}
	}
	return out
}

// begun returns the first position at which the rest of the text could be the beginning of a value,
// if the rest has at least least letters. Otherwise it returns the length of the text.
func (n naive) begun(text []byte, least int) int {
	separator := separatorsOf(text)
	for i := range text {
		rest := text[i:]
		for _, f := range n.plain {
			if len(rest) >= least && len(rest) < len(f) && bytes.HasPrefix(f, rest) {
				return i
			}
		}
		var letters []byte
		for j, b := range rest {
			if !separator[i+j] {
				letters = append(letters, b)
			}
		}
		if separator[i] || len(letters) < least || len(rest)-len(letters) > len(letters) {
			continue
		}
		for _, f := range n.wrapped {
			if len(letters) < len(f) && bytes.HasPrefix(f, letters) {
				return i
			}
		}
	}
	return len(text)
}

// redacted returns the text with stars, as it must come out if it comes in pieces that end at the
// given positions. A byte is a star if a value that covers it was complete when the byte had to go
// out.
func (n naive) redacted(text []byte, ends []int) string {
	all := n.matches(text)
	out := slices.Clone(text)
	given := 0
	give := func(to, arrived int) {
		for ; given < to; given++ {
			for _, m := range all {
				if m[0] <= given && given < m[1] && m[1] <= arrived {
					out[given] = '*'
				}
			}
		}
	}
	for _, end := range ends {
		give(n.begun(text[:end], holdFrom), end)
	}
	if from := n.begun(text, MinValue); from < len(text) {
		all = append(all, [2]int{from, len(text)})
	}
	give(len(text), len(text))
	return string(out)
}

func run(r *Redactor, text []byte, ends []int) string {
	s := r.Stream()
	var out []byte
	from := 0
	for _, end := range ends {
		out = s.Append(out, text[from:end])
		from = end
	}
	return string(s.End(s.Append(out, text[from:])))
}

func compare(t *testing.T, a, b, text []byte, ends []int) {
	t.Helper()
	values := []Value{{"A", a}, {"B", b}}
	stars, err := New(values, Options{SameLength: true})
	if err != nil {
		return // no such values can be set, so there is nothing to compare
	}
	names, err := New(values, Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := newNaive(a, b)
	want := n.redacted(text, ends)
	if got := run(stars, text, ends); got != want {
		t.Fatalf("values %q and %q, pieces to %v of\n%q\ngot  %q\nwant %q", a, b, ends, text, got, want)
	}
	if got, want := string(stars.Bytes(text)), n.redacted(text, nil); got != want {
		t.Fatalf("values %q and %q, whole\n%q\ngot  %q\nwant %q", a, b, text, got, want)
	}
	if bytes.ContainsAny(text, "*[") {
		return // the text contains characters of replacements
	}
	strip := strings.NewReplacer("[redacted:A]", "", "[redacted:B]", "", "*", "")
	if got := strip.Replace(run(names, text, ends)); got != strip.Replace(want) {
		t.Fatalf("values %q and %q, pieces to %v of\n%q\nwith names %q\nwant %q", a, b, ends, text, got, want)
	}
}

// compose makes a text of beginnings of forms and of loose letters, and pieces of it, from data.
func compose(a, b, data []byte) (text []byte, ends []int) {
	forms := slices.Concat(plainForms(a), wrappedForms(a), plainForms(b), wrappedForms(b))
	for len(data) >= 3 && len(text) < 2000 {
		op, x, y := data[0], int(data[1]), int(data[2])
		data = data[3:]
		f := forms[x%len(forms)]
		switch op % 8 {
		case 0, 1:
			text = append(text, f...)
		case 2:
			text = append(text, f[:y%(len(f)+1)]...)
		case 3:
			text = append(text, f[y%len(f):]...)
		case 4: // in lines
			width := y%7 + 1
			for len(f) > width {
				text = append(append(text, f[:width]...), "\n\r \\"[op>>3&3])
				if op>>3&3 == 3 {
					text = append(text, 'n')
				}
				f = f[width:]
			}
			text = append(text, f...)
		case 5:
			text = append(text, byte(y))
		case 6:
			text = append(text, bytes.Repeat([]byte{"\n\\ nab"[x%6]}, y%20)...)
		}
		if op >= 128 {
			ends = append(ends, len(text)-min(x%8, len(text)))
		}
	}
	slices.Sort(ends)
	return text, slices.Compact(ends)
}

// FuzzAgainstNaive compares the automaton with the naive search.
func FuzzAgainstNaive(f *testing.F) {
	f.Add([]byte("abcdabcd"), []byte("dcbaabcdé\""), []byte{0, 0, 0, 130, 1, 9, 4, 12, 3, 2, 5, 12, 255, 2, 1, 4, 9, 60, 6, 0, 17})
	f.Add([]byte("tk-Zr8?qP/2mW"), []byte("tk-Zr8?q\nP/3="), []byte{1, 1, 1, 132, 9, 5, 133, 4, 44, 2, 7, 7, 6, 1, 3})
	f.Fuzz(func(t *testing.T, a, b, data []byte) {
		if len(a) > 100 || len(b) > 100 || Check(a) != nil || Check(b) != nil {
			return
		}
		text, ends := compose(a, b, data)
		compare(t, a, b, text, ends)
	})
}

// The values have few different letters, so that they overlap each other and themselves. The texts
// are split at random positions.
func TestAutomatonMatchesNaiveSearch(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	letters := func(n int, from string) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = from[random.IntN(len(from))]
		}
		return b
	}
	attempts, found := 0, 0
	for attempts < 1500 {
		a, b := letters(8+random.IntN(6), "abc\n"), letters(8+random.IntN(6), "nbc\n 6")
		if Check(a) != nil || Check(b) != nil {
			continue
		}
		attempts++
		text, ends := compose(a, b, letters(3*random.IntN(12), string(letters(40, "\x00\x01\x02\x03\x04\x05\x06\x82\x84\x80\xff\x0c\x23\x07"))))
		text = append(text, letters(random.IntN(10), "abc\n")...)
		compare(t, a, b, text, ends)
		if len(newNaive(a, b).matches(text)) > 0 {
			found++
		}
	}
	if found < attempts/4 {
		t.Errorf("only %d of %d texts contain a value, want at least a quarter of them", found, attempts)
	}
}
