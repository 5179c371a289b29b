package gomod

import (
	"archive/zip"
	"errors"
	"io"

	"golang.org/x/mod/sumdb/dirhash"

	"github.com/crannog/crannog/internal/packages"
)

const (
	// maxUnpacked is Go's own limit for the files of a module.
	maxUnpacked = 500 << 20
	// maxToolchain limits the unpacked files of a toolchain, which is a module too.
	maxToolchain = 2 << 30
	maxMod       = 16 << 20
	maxFiles     = 200_000
)

var errTooLarge = errors.New("the module is larger than Go permits")

// checkMod is for a file whose sum is unknown.
func checkMod(io.ReaderAt, int64) error { return errors.New("there is no sum") }

// modCheck returns a function that compares a go.mod with its sum.
func modCheck(sum string) func(io.ReaderAt, int64) error { return check(modSum, sum) }

// zipCheck returns a function that compares the files in a module's archive with their sum.
func zipCheck(sum string) func(io.ReaderAt, int64) error { return check(zipSum, sum) }

func check(compute func(io.ReaderAt, int64) (string, error), want string) func(io.ReaderAt, int64) error {
	return func(content io.ReaderAt, size int64) error {
		got, err := compute(content, size)
		if err == nil && got != want {
			err = packages.Tampered("the module is not what the checksum database says: its sum is " + got + " instead of " + want)
		}
		return err
	}
}

// modSum returns the sum of a go.mod.
func modSum(content io.ReaderAt, size int64) (string, error) {
	if size > maxMod {
		return "", packages.Tampered(errTooLarge.Error())
	}
	sum, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return io.NopCloser(io.NewSectionReader(content, 0, size)), nil
	})
	return sum, unverifiable(err)
}

// zipSum returns the sum of the files in a module's archive.
func zipSum(content io.ReaderAt, size int64) (string, error) {
	z, err := zip.NewReader(content, size)
	if err != nil {
		return "", packages.Tampered("the module is no archive: " + err.Error())
	}
	if len(z.File) > maxFiles {
		return "", packages.Tampered(errTooLarge.Error())
	}
	var names []string
	files := map[string]*zip.File{}
	for _, f := range z.File {
		// With two files of one name, go could unpack another one than was verified.
		if files[f.Name] != nil {
			return "", packages.Tampered("the module has two files named " + f.Name)
		}
		names, files[f.Name] = append(names, f.Name), f
	}
	left := int64(maxUnpacked)
	if len(names) > 0 && isToolchain(names[0]) {
		left = maxToolchain
	}
	sum, err := dirhash.Hash1(names, func(name string) (io.ReadCloser, error) {
		r, err := files[name].Open()
		if err != nil {
			return nil, err
		}
		return &limited{ReadCloser: r, left: &left}, nil
	})
	return sum, unverifiable(err)
}

func unverifiable(err error) error {
	if err == nil {
		return nil
	}
	return packages.Tampered("the module cannot be verified: " + err.Error())
}

func isToolchain(name string) bool {
	const prefix = "golang.org/toolchain@"
	return len(name) > len(prefix) && name[:len(prefix)] == prefix
}

// limited stops an archive that unpacks to more than is left for all its files.
type limited struct {
	io.ReadCloser
	left *int64
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if *l.left -= int64(n); *l.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}
