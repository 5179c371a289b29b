package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/crannog/crannog/internal/fault"
)

// maxGap limits a line that represents omitted entries.
const maxGap = 64 << 10

// VerifyFile checks an exported file by itself: each entry is as the holder of the key signed it,
// and no entry is missing except those that the file marks as omitted. notes are earlier signed
// tree heads. VerifyFile returns an error if it could not check the file.
func VerifyFile(r io.Reader, key string, notes ...string) (Verification, error) {
	verifier, err := note.NewVerifier(key)
	if err != nil {
		return Verification{}, fault.Wrap(err, fault.Invalid, "key_invalid", "the key is not a verifier key of an audit log").
			WithHint("`crannog audit export` prints it, and so does the API at /v1/audit/key")
	}
	f := &fileCheck{key: key, verifier: verifier, in: newFileLines(r)}
	all, err := marksOf(verifier, notes)
	if err == nil {
		f.marks.left = all
		err = f.run()
	}
	v := Verification{Entries: f.entries, First: max(0, f.first), Checkpoints: f.marks.count}
	if isDamage(err) {
		err = found(f.grown.size, Unreadable, "%v", err)
	}
	problem, ok := errors.AsType[*finding](err)
	if ok {
		v.Seq, v.Flaw, v.Text, err = problem.seq, problem.flaw, problem.text, nil
	}
	v.OK = err == nil && !ok
	return v, err
}

// fileCheck is the state of one pass over an exported file.
type fileCheck struct {
	key      string
	verifier note.Verifier
	in       *fileLines
	grown    frontier // tree of the entries read so far
	chain    chain
	marks    marks
	entries  int64
	first    int64 // number of the first entry in the file
	missed   error // a tree head whose size is within omitted entries
}

func notExported(cause error) error {
	return fault.Wrap(cause, fault.Invalid, "export_invalid", "the file is not an exported audit log").
		WithHint("`crannog audit export` writes one")
}

func (f *fileCheck) run() error {
	line, err := f.in.next()
	if err != nil {
		return notExported(err)
	}
	var head exported
	if decodeStrict(line, &head) != nil || head.Header == nil || head.Header.Version != exportVersion {
		return notExported(nil)
	}
	if head.Header.Key != f.key {
		return found(0, Unsigned, "the file is of the audit log with the key %.200q", head.Header.Key)
	}
	f.first = -1
	if err := f.compare(); err != nil {
		return err
	}
	for {
		line, err := f.in.next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return f.cut()
		case isDamage(err):
			return found(f.grown.size, Changed, "entry %d was changed: %v", f.grown.size, err)
		case err != nil:
			return err
		}
		var special exported
		if decodeStrict(line, &special) != nil {
			err = f.entry(line)
		} else if special.LeftOut != nil {
			err = f.skip(*special.LeftOut)
		} else if special.End != nil {
			return f.end(*special.End)
		} else {
			err = found(f.grown.size, Changed, "entry %d was changed", f.grown.size)
		}
		if err != nil {
			return err
		}
	}
}

// decodeStrict decodes one JSON value without unknown fields.
func decodeStrict(line []byte, v any) error {
	in := json.NewDecoder(bytes.NewReader(line))
	in.DisallowUnknownFields()
	if err := in.Decode(v); err != nil {
		return err
	}
	if in.InputOffset() != int64(len(line)) {
		return errors.New("more than one value")
	}
	return nil
}

// cut returns the finding for a file without its last line.
func (f *fileCheck) cut() error {
	if err := f.chain.end(); err != nil {
		return err
	}
	return found(f.grown.size, Cut, "the file ends at entry %d, without its signed tree head", f.grown.size)
}

func (f *fileCheck) entry(line []byte) error {
	seq := f.grown.size
	e, err := decode(line)
	if err != nil {
		return found(seq, Changed, "entry %d was changed", seq)
	}
	if e.Seq != seq {
		return misplaced(seq, e.Seq, f.later(seq))
	}
	if err := f.chain.link(e.Prev); err != nil {
		return err
	}
	f.chain.line(seq, line)
	if f.first < 0 {
		f.first = seq
	}
	f.entries++
	if err := f.grown.push(0, tlog.RecordHash(line)); err != nil {
		return err
	}
	return f.compare()
}

// later reports whether an entry is further on in the file.
func (f *fileCheck) later(seq int64) bool {
	for {
		line, err := f.in.next()
		if err != nil {
			return false
		}
		if e, err := decode(line); err == nil && e.Seq == seq {
			return true
		}
	}
}

// skip adds the subtrees of omitted entries to the tree.
func (f *fileCheck) skip(gap leftOut) error {
	from := f.grown.size
	if err := f.closeChain(gap.Prev); err != nil {
		return err
	}
	levels, _ := subtrees(from, gap.To)
	hashes, err := decodeHashes(gap.Hashes)
	if gap.From != from || gap.To <= from || err != nil || len(hashes) != len(levels) {
		return found(from, Missing, "entry %d is missing: the line for omitted entries does not begin there, or is damaged", from)
	}
	for i, h := range hashes {
		if err := f.grown.push(levels[i], h); err != nil {
			return err
		}
		if err := f.compare(); err != nil {
			return err
		}
	}
	return nil
}

// closeChain ends a sequence of consecutive entries.
func (f *fileCheck) closeChain(prev string) error {
	if err := f.chain.link(prev); err != nil {
		return err
	}
	if f.chain.suspect {
		return found(f.chain.last, Changed, "entry %d was changed", f.chain.last)
	}
	f.chain = chain{}
	return nil
}

// compare checks whether a tree head matches the entries read so far. A tree head whose size falls
// within omitted entries cannot be compared.
func (f *fileCheck) compare() error {
	for len(f.marks.left) > 0 && f.marks.left[0].size < f.grown.size {
		f.missed = fault.Newf(fault.Invalid, "checkpoint_between", "the signed tree head of %d entries falls into entries that the file omits", f.marks.left[0].size).
			WithHint("compare it with the audit log itself, or export more of it")
		f.marks.left = f.marks.left[1:]
	}
	return f.marks.at(&f.grown)
}

// end compares the last line of the file, with its signed tree head, with the entries.
func (f *fileCheck) end(end exportEnd) error {
	if err := f.closeChain(end.Prev); err != nil {
		return err
	}
	n := f.grown.size
	c, root, err := openCheckpoint(end.Note, f.verifier)
	if err != nil {
		return found(n, Unsigned, "%v", err)
	}
	if c.Size != n || end.Size != n {
		return found(n, Cut, "entries from %d on are missing: the file's signed tree head covers %d", n, c.Size)
	}
	if root != f.grown.root() || c.Root != end.Root {
		return found(f.marks.agreed, Forked, "entries from %d to %d are not those that were signed", f.marks.agreed, n-1)
	}
	f.marks.count++
	if _, err := f.in.next(); !errors.Is(err, io.EOF) {
		return found(n, Changed, "there is data after the last line of the export")
	}
	if left := f.marks.left; len(left) > 0 {
		return fault.Newf(fault.Invalid, "checkpoint_later", "the signed tree head of %d entries is newer than the file, which ends at %d", left[0].size, n).
			WithHint("export the audit log again, or compare the signed tree head with the audit log itself")
	}
	return f.missed
}

// fileLines reads lines of a stream, with the maximum length of the log's own lines.
type fileLines struct{ in *bufio.Scanner }

func newFileLines(r io.Reader) *fileLines {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 64<<10), maxLine+maxGap)
	s.Split(splitLines)
	return &fileLines{s}
}

// splitLines does not strip a carriage return, because it is part of the line and changes its hash.
func splitLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return 0, nil, nil
}

func (f *fileLines) next() ([]byte, error) {
	if f.in.Scan() {
		return f.in.Bytes(), nil
	}
	if err := f.in.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, damageError("a line is too long")
	} else if err != nil {
		return nil, err
	}
	return nil, io.EOF
}
