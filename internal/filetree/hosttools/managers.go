package hosttools

import (
	"cmp"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
)

// manager is one version manager.
type manager struct {
	name string
	// variable is the environment variable with its directory. Without it, the directory is one of
	// places below the home directory.
	variable string
	places   []string
	// show lists the directories below it that contain programs. If there are credentials or caches
	// beside them, only the program directories are listed.
	show []string
	// bin lists the directories of programs, in search order.
	bin []string
	// inside is the variable that its programs in the sandbox need, with its directory.
	inside string
	// files of the home directory select versions and contain nothing else.
	files []string
}

// managers are the supported version managers.
var managers = []manager{
	{name: "pyenv", variable: "PYENV_ROOT", places: []string{".pyenv"}, show: []string{"."}, bin: []string{"shims", "bin"}, inside: "PYENV_ROOT"},
	{name: "nvm", variable: "NVM_DIR", places: []string{".nvm", ".config/nvm"}, show: []string{"."}, bin: []string{"versions/node/*/bin"}, inside: "NVM_DIR"},
	{
		name: "asdf", variable: "ASDF_DATA_DIR", places: []string{".asdf"}, show: []string{"."}, bin: []string{"shims", "bin"}, inside: "ASDF_DATA_DIR",
		files: []string{".tool-versions"},
	},
	{name: "mise", variable: "MISE_DATA_DIR", places: []string{".local/share/mise"}, show: []string{"installs", "shims", "plugins"}, bin: []string{"installs/*/latest/bin"}, inside: "MISE_DATA_DIR"},
	// ~/.cargo has credentials.toml and the registry's cache beside its programs.
	{name: "cargo", variable: "CARGO_HOME", places: []string{".cargo"}, show: []string{"bin"}, bin: []string{"bin"}},
	{name: "rustup", variable: "RUSTUP_HOME", places: []string{".rustup"}, show: []string{"."}, inside: "RUSTUP_HOME"},
	// ~/.local/share/uv has credentials beside the programs.
	{name: "uv", places: []string{".local/share/uv"}, show: []string{"python", "tools"}, bin: []string{"python/*/bin"}},
	{name: "go", variable: "GOPATH", places: []string{"go"}, show: []string{"bin"}, bin: []string{"bin"}},
	{name: "volta", variable: "VOLTA_HOME", places: []string{".volta"}, show: []string{"."}, bin: []string{"bin"}, inside: "VOLTA_HOME"},
	{name: "fnm", variable: "FNM_DIR", places: []string{".local/share/fnm", ".fnm"}, show: []string{"."}, bin: []string{"aliases/default/bin"}, inside: "FNM_DIR"},
	{name: "rbenv", variable: "RBENV_ROOT", places: []string{".rbenv"}, show: []string{"."}, bin: []string{"shims", "bin"}, inside: "RBENV_ROOT"},
	{name: "goenv", variable: "GOENV_ROOT", places: []string{".goenv"}, show: []string{"."}, bin: []string{"shims", "bin"}, inside: "GOENV_ROOT"},
	{name: "sdkman", variable: "SDKMAN_DIR", places: []string{".sdkman"}, show: []string{"candidates"}, bin: []string{"candidates/*/current/bin"}},
	{name: "conda", places: []string{"miniconda3", "miniforge3", "anaconda3", "mambaforge"}, show: []string{"."}, bin: []string{"bin"}},
	{name: "bun", variable: "BUN_INSTALL", places: []string{".bun"}, show: []string{"bin"}, bin: []string{"bin"}},
	{name: "deno", variable: "DENO_INSTALL", places: []string{".deno"}, show: []string{"bin"}, bin: []string{"bin"}},
	{name: "npm", places: []string{".npm-global"}, show: []string{"bin", "lib"}, bin: []string{"bin"}},
	{name: "pipx", variable: "PIPX_HOME", places: []string{".local/share/pipx", ".local/pipx"}, show: []string{"venvs"}},
	{name: "local", places: []string{".local"}, show: []string{"bin"}, bin: []string{"bin"}},
}

// Names lists the version managers.
func Names() []string {
	var names []string
	for _, m := range managers {
		names = append(names, m.name)
	}
	return names
}

// newestFirst sorts paths by the numbers in them, so that v20 comes before v9.
func newestFirst(a, b string) int {
	for a != "" && b != "" {
		x, restA := number(a)
		y, restB := number(b)
		if x >= 0 && y >= 0 {
			if x != y {
				return cmp.Compare(y, x)
			}
			a, b = restA, restB
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(b[0], a[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(b), len(a))
}

// number parses a number at the beginning of a text. -1 means that there is none.
func number(s string) (n int, rest string) {
	rest = strings.TrimLeft(s, "0123456789")
	n, err := strconv.Atoi(s[:len(s)-len(rest)])
	if err != nil {
		return -1, s
	}
	return n, rest
}

// maxCopied bounds the size of a file that selects versions.
const maxCopied = 16 << 10

// errNotSmall is returned for a file that is not copied.
var errNotSmall = errors.New("not a small regular file")

// readSmall reads a file that selects versions.
func readSmall(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > maxCopied {
		return nil, errNotSmall
	}
	return io.ReadAll(io.LimitReader(f, maxCopied))
}
