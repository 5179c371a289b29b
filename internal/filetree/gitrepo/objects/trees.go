package objects

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// maxDepth bounds the depth of nested directories.
const maxDepth = 512

// file is an entry of a tree.
type file struct{ name, mode, id string }

const treeMode = "40000"

// tree reads a tree. size is the length of an object ID in bytes.
func (r *Reader) tree(id string, size int) ([]file, error) {
	if id == "" {
		return nil, nil
	}
	kind, data, err := r.Read(id)
	if err != nil {
		return nil, err
	}
	if kind != "tree" {
		return nil, fmt.Errorf("%w: %s is not a tree", errMalformed, id)
	}
	var out []file
	for len(data) > 0 {
		head := bytes.IndexByte(data, 0)
		if head < 0 || head+1+size > len(data) {
			return nil, fmt.Errorf("%w: %s is truncated", errMalformed, id)
		}
		mode, name, ok := strings.Cut(string(data[:head]), " ")
		if !ok || name == "" {
			return nil, errMalformed
		}
		out = append(out, file{name, mode, hex.EncodeToString(data[head+1 : head+1+size])})
		data = data[head+1+size:]
	}
	return out, nil
}

// Changed calls f with the path of each file that differs between two trees, and with its mode and
// object name in the second tree. These are "" if the file does not exist there. The tree name ""
// stands for an empty tree.
func (r *Reader) Changed(from, to string, f func(path, now string) error) error {
	return r.changed(from, to, "", max(len(from), len(to))/2, 0, f)
}

// changed is Changed for two directories. above is their path, with a slash.
func (r *Reader) changed(from, to, above string, size, depth int, f func(path, now string) error) error {
	if from == to {
		return nil
	}
	if r.trees--; r.trees < 0 || depth > maxDepth {
		return errors.New("the trees are larger than the limit")
	}
	old, err := r.tree(from, size)
	if err != nil {
		return err
	}
	now, err := r.tree(to, size)
	if err != nil {
		return err
	}
	before := make(map[string]file, len(old))
	for _, e := range old {
		before[e.name] = e
	}
	// A name that appears twice in a tree is compared twice.
	for _, e := range now {
		o, existed := before[e.name]
		delete(before, e.name)
		if existed && o == e {
			continue
		}
		if err := r.both(o, e, above+e.name, size, depth, f); err != nil {
			return err
		}
	}
	for _, o := range old {
		if _, removed := before[o.name]; removed {
			if err := r.both(o, file{}, above+o.name, size, depth, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// both compares a name in two trees.
func (r *Reader) both(o, e file, name string, size, depth int, f func(path, now string) error) error {
	oldTree, newTree := "", ""
	if o.mode == treeMode {
		oldTree = o.id
	}
	if e.mode == treeMode {
		newTree = e.id
	}
	if o.id != "" && oldTree == "" || e.id != "" && newTree == "" {
		now := ""
		if e.id != "" && newTree == "" {
			now = e.mode + " " + e.id
		}
		if err := f(name, now); err != nil {
			return err
		}
	}
	return r.changed(oldTree, newTree, name+"/", size, depth+1, f)
}
