package mcpserver

import (
	"context"
	"encoding/base64"
	"io/fs"
	"strconv"

	"github.com/crannog/crannog/internal/fault"
)

type writeFileIn struct {
	target
	Path    string  `json:"path" jsonschema:"The file, absolute or from /workspace on. Missing directories are created."`
	Content *string `json:"content,omitempty" jsonschema:"All of its text."`
	Base64  *string `json:"base64,omitempty" jsonschema:"Its bytes, in place of content."`
	Mode    string  `json:"mode,omitempty" jsonschema:"Permissions in octal, such as 0755. By default, 0644 for a new file, unchanged for an existing one."`
}

type writeFileOut struct {
	Path    string `json:"path"`
	Bytes   int    `json:"size_bytes"`
	Created bool   `json:"created" jsonschema:"The file did not exist before."`
	Sandbox string `json:"sandbox"`
}

func (w *view) addWriteFile() {
	add(w, tool{
		name: "write_file", title: "Write a file", changes: true, destroys: true, repeats: true,
		text: "Write a whole file, replacing its content. To change a part of a file use edit_file.",
	}, w.writeFile)
}

func (w *view) writeFile(ctx context.Context, c *call, in writeFileIn) (writeFileOut, error) {
	name, err := fsName(in.Path)
	if err != nil {
		return writeFileOut{}, err
	}
	data, err := in.data()
	if err != nil {
		return writeFileOut{}, err
	}
	mode, err := octal(in.Mode)
	if err != nil {
		return writeFileOut{}, err
	}
	b, err := c.sandbox(ctx, in.Sandbox)
	if err != nil {
		return writeFileOut{}, err
	}
	files := b.sb.FS().WithContext(ctx)
	_, statErr := files.Stat(name)
	b.editing.Lock()
	defer b.editing.Unlock()
	// Without the argument mode, an existing file keeps its mode.
	if err := files.WriteFile(name, data, 0o644); err != nil {
		return writeFileOut{}, err
	}
	if in.Mode != "" {
		if err := files.Chmod(mode, name); err != nil {
			return writeFileOut{}, err
		}
	}
	out := writeFileOut{Path: absPath(name), Bytes: len(data), Created: statErr != nil, Sandbox: b.sb.ID()}
	c.printf("wrote %s, %d bytes\n", out.Path, out.Bytes)
	return out, nil
}

// data returns the content to write, given in one of two encodings.
func (in writeFileIn) data() ([]byte, error) {
	switch {
	case in.Content != nil && in.Base64 != nil:
		return nil, fault.New(fault.Invalid, "two_contents", "content and base64 exclude each other")
	case in.Content != nil:
		return []byte(*in.Content), nil
	case in.Base64 != nil:
		data, err := base64.StdEncoding.DecodeString(*in.Base64)
		if err != nil {
			return nil, fault.New(fault.Invalid, "invalid_base64", "base64 is not standard base64 with padding")
		}
		return data, nil
	}
	return nil, fault.New(fault.Invalid, "no_content", "content or base64 is missing").WithHint(`use content "" for an empty file`)
}

// octal parses permissions. Setuid and setgid bits are refused.
func octal(text string) (fs.FileMode, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 8, 16)
	if err != nil || n > 0o777 {
		return 0, fault.New(fault.Invalid, "invalid_mode", "mode must be three octal digits, such as 0755")
	}
	return fs.FileMode(n), nil
}
