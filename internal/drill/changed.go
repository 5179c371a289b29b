package drill

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
)

// maxFile bounds what is read of each file that an attack wrote.
const maxFile = 1 << 20

// containsToken reports whether the token is in a file below dir, or in a file's name. The attack
// controls what is in dir, so links are not followed, and only regular files are opened.
func containsToken(dir, token string) (bool, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false, err
	}
	defer root.Close()
	errFound := errors.New("found")
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if strings.Contains(e.Name(), token) {
			return errFound
		}
		if !e.Type().IsRegular() {
			return nil
		}
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		data, err := io.ReadAll(io.LimitReader(f, maxFile))
		if err == nil && strings.Contains(string(data), token) {
			return errFound
		}
		return err
	})
	if errors.Is(err, errFound) {
		return true, nil
	}
	return false, err
}
