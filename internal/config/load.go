package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// maxFileBytes limits the settings file, which normally has about a page of text.
const maxFileBytes = 1 << 20

// Load applies the file and the environment to the defaults. It reports all problems together.
// Flags are applied afterwards by Set.
func Load(env Env, named string) (Config, error) {
	c := Default(env)
	var problems []error
	path, err := findFile(env, named)
	if err != nil {
		problems = append(problems, err)
	}
	if path != "" {
		problems = append(problems, c.readFile(path)...)
	}
	for _, s := range settings {
		name := envName(s.name)
		value, ok := env.Lookup(name)
		if !ok || value == "" {
			continue
		}
		if err := c.Set(s.name, value, name); err != nil {
			problems = append(problems, err)
		}
	}
	return c, errors.Join(problems...)
}

// findFile returns the path of the settings file, or "" if there is none. A file that was named
// explicitly must exist.
func findFile(env Env, named string) (string, error) {
	if named == "" {
		named, _ = env.Lookup("CRANNOG_CONFIG")
	}
	if named != "" {
		if _, err := os.Stat(named); err != nil {
			return "", fmt.Errorf("settings file: %w", err)
		}
		return named, nil
	}
	for _, path := range candidates(env) {
		switch _, err := os.Stat(path); {
		case err == nil:
			return path, nil
		case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission):
			return "", fmt.Errorf("settings file: %w", err)
		}
	}
	return "", nil
}

func candidates(env Env) []string {
	var paths []string
	if dir, ok := env.Lookup("XDG_CONFIG_HOME"); ok && filepath.IsAbs(dir) {
		paths = append(paths, filepath.Join(dir, "crannog", "config.toml"))
	} else if env.Home != "" {
		paths = append(paths, filepath.Join(env.Home, ".config", "crannog", "config.toml"))
	}
	return append(paths, "/etc/crannog/config.toml")
}

func (c *Config) readFile(path string) []error {
	f, err := os.Open(path)
	if err != nil {
		return []error{fmt.Errorf("settings file: %w", err)}
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return []error{fmt.Errorf("settings file %s: %w", path, err)}
	}
	if len(data) > maxFileBytes {
		return []error{fmt.Errorf("settings file %s is larger than %d bytes", path, maxFileBytes)}
	}
	return c.parse(data, path)
}

// parse applies a settings file. An unknown key is an error, because a misspelt limit would
// otherwise silently have no effect.
func (c *Config) parse(data []byte, path string) []error {
	var table map[string]any
	if err := toml.Unmarshal(data, &table); err != nil {
		return []error{fmt.Errorf("settings file %s: %w", path, err)}
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(table)) {
		value, err := scalar(table[name])
		if err == nil {
			err = c.Set(name, value, path)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("settings file %s: %s: %w", path, name, err))
		}
	}
	return problems
}

func scalar(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case bool:
		return strconv.FormatBool(v), nil
	case time.Time, map[string]any, []any:
		return "", errors.New("the value must be text, a number, true or false")
	default:
		return "", fmt.Errorf("a value of type %T is not allowed", v)
	}
}
