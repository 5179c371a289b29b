package guestmain

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/javastore"
)

// addedAttribute is the extended attribute that records which part of a file the guest added. It is
// an attribute because it must move with the file, into a snapshot or an archive.
const addedAttribute = "user.crannog.added"

// addition describes the data that the guest added before and after a range of a file. A new
// addition replaces an earlier one.
type addition struct {
	From, To, Length int    // range in the original file, and the length of that file
	Head, Tail       int    // lengths of the data before and after the range
	Sum              string // checksum of the added data
}

const additionFormat = "%d %d %d %d %d %64s"

func (a addition) String() string {
	return fmt.Sprintf(additionFormat, a.From, a.To, a.Length, a.Head, a.Tail, a.Sum)
}

// sum returns a checksum of the added data. It shows whether the data is still in the file.
func sum(head, tail []byte) string {
	h := sha256.New()
	h.Write(head)
	h.Write(tail)
	return fmt.Sprintf("%x", h.Sum(nil))
}

// readAddition reads the attribute of a file. It returns false for a file without an addition.
func readAddition(path string) (addition, bool) {
	var text [256]byte
	n, err := unix.Getxattr(path, addedAttribute, text[:])
	if err != nil {
		return addition{}, false
	}
	return parseAddition(string(text[:n]))
}

// parseAddition parses the attribute. Root inside may have written it, so it is not trusted.
func parseAddition(text string) (addition, bool) {
	var a addition
	if _, err := fmt.Sscanf(text, additionFormat, &a.From, &a.To, &a.Length, &a.Head, &a.Tail, &a.Sum); err != nil {
		return addition{}, false
	}
	ok := 0 <= a.From && a.From <= a.To && a.To <= a.Length && a.Length <= maxAdded &&
		0 <= a.Head && a.Head <= maxAdded && 0 <= a.Tail && a.Tail <= maxAdded
	return a, ok
}

// maxAdded limits the size of a file to which the guest adds data, because the whole file is read
// into memory.
const maxAdded = 64 << 20

// find returns the original range, and the data that follows the addition. It returns false if the
// content does not contain the addition.
func (a addition) find(content []byte) (part, rest []byte, ok bool) {
	middle, end := a.Head+a.To-a.From, a.Head+a.To-a.From+a.Tail
	if end > len(content) || sum(content[:a.Head], content[middle:end]) != a.Sum {
		return nil, nil, false
	}
	return content[a.Head:middle], content[end:], true
}

// errUnexpectedFile is returned for a file that is not the one to which data should be added.
var errUnexpectedFile = errors.New("it is not the expected file")

// add adds the data of f to an existing file.
func add(f guest.File, first bool) error {
	next := addition{Tail: len(f.Data), Sum: sum(nil, f.Data)}
	if a := f.Around; a != nil {
		next = addition{From: a.From, To: a.To, Length: a.Length, Head: len(a.Head), Tail: len(f.Data), Sum: sum(a.Head, f.Data)}
		if a.From < len(a.Head) || a.To < a.From || a.To > a.Length {
			return fmt.Errorf("add to %s: %w", f.Path, errUnexpectedFile)
		}
	}
	before, known := readAddition(f.Path) // known: the file has an addition
	if f.Append {
		next.From, next.To, next.Length = before.From, before.To, before.Length
	}
	if known && before == next && !first {
		return nil
	}
	if f.Append && known && !first && before.replaceTail(f) == nil {
		return nil
	}
	content, err := readRegular(f.Path, maxAdded)
	if errors.Is(err, fs.ErrNotExist) {
		if f.Around != nil {
			return nil // there is no file to add to
		}
		err = nil
	}
	if err != nil {
		return err
	}
	if f.Append {
		return appendTo(f, content, before, known)
	}
	part, ok := original(*f.Around, content, before, known)
	if !ok && javastore.IsHead(f.Around.Head) && len(f.Data) > javastore.SumSize {
		return addEntry(f, content, before, known)
	}
	if !ok && first {
		return fmt.Errorf("add to %s: %w", f.Path, errUnexpectedFile)
	}
	if !ok {
		return nil
	}
	return replaceFile(f, next.String(), f.Around.Head, part, f.Data)
}

// addEntry adds to a Java trust store what was meant for another one, because an image has its own.
// It stays as it is if it has another format or password: Java then does not trust the gateway.
func addEntry(f guest.File, content []byte, before addition, known bool) error {
	entries, count, ok := javastore.Parse(content)
	if !ok {
		return nil
	}
	if known {
		if part, rest, found := before.find(content); found && len(rest) == 0 && before.Head == javastore.HeadSize && count > 0 {
			entries, count = part, count-1
		}
	}
	store := javastore.Join(count+1, entries, f.Data[:len(f.Data)-javastore.SumSize])
	end := javastore.HeadSize + len(entries)
	head, tail := store[:javastore.HeadSize], store[end:]
	next := addition{
		From: javastore.HeadSize, To: end, Length: end + javastore.SumSize,
		Head: len(head), Tail: len(tail), Sum: sum(head, tail),
	}
	if known && before == next {
		return nil
	}
	return replaceFile(f, next.String(), head, entries, tail)
}

// appendTo appends the data, or replaces data that it appended earlier.
func appendTo(f guest.File, content []byte, before addition, known bool) error {
	part, rest := content, []byte(nil)
	if known {
		if found, later, ok := before.find(content); ok && before.Head == 0 {
			part, rest = found, later
		}
	}
	next := addition{To: len(part), Length: len(part), Tail: len(f.Data), Sum: sum(nil, f.Data)}
	return replaceFile(f, next.String(), part, f.Data, rest)
}

// replaceTail replaces data that was appended earlier, if nothing follows it. It does not read the
// rest of a large file.
func (a addition) replaceTail(f guest.File) error {
	file, size, err := openSingle(f.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	at := int64(a.To - a.From)
	if a.Head != 0 || size != at+int64(a.Tail) {
		return errUnexpectedFile
	}
	tail := make([]byte, a.Tail)
	if _, err := file.ReadAt(tail, at); err != nil || sum(nil, tail) != a.Sum {
		return errUnexpectedFile
	}
	a.Tail, a.Sum = len(f.Data), sum(nil, f.Data)
	if err := unix.Fsetxattr(int(file.Fd()), addedAttribute, []byte(a.String()), 0); err != nil {
		return err
	}
	if _, err := file.WriteAt(f.Data, at); err != nil {
		return err
	}
	if err := file.Truncate(at + int64(a.Tail)); err != nil {
		return err
	}
	return file.Chmod(permission(f))
}

// original returns the part of the file that must be preserved, from the template's file or from a
// file with an earlier addition.
func original(a guest.Around, content []byte, before addition, known bool) ([]byte, bool) {
	if !known {
		return content[min(a.From, len(content)):min(a.To, len(content))], len(content) == a.Length
	}
	part, rest, ok := before.find(content)
	ok = ok && len(rest) == 0 && before.From == a.From && before.To == a.To && before.Length == a.Length
	return part, ok
}
