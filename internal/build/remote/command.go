package remote

import (
	"github.com/crannog/crannog/internal/guest/fetch"
	"github.com/crannog/crannog/internal/image/root"
)

// Paths in the sandbox that fetches a source. Dir receives the files.
const (
	Dir        = "/fetched"
	CommitFile = "commit" // the fetched commit, below Dir
	TreeDir    = "tree"   // the files of the repository, below Dir
)

// MaxBytes bounds the size of a source. The sandbox's own limit of disk space applies too.
const MaxBytes = 16 << 30

// MaxFiles bounds the number of files of a source.
const MaxFiles = 1_000_000

// FileName is the name of a downloaded file below Dir.
const FileName = "file"

// Command returns the command that fetches the source in a sandbox. The command for a repository
// needs the host's git.
func (s Source) Command(checksum string, keepGit bool) []string {
	if !s.Git {
		return append([]string{root.GuestTarget}, fetch.Args(s.URL, Dir+"/"+FileName, MaxBytes)...)
	}
	keep := ""
	if keepGit {
		keep = "keep"
	}
	ref := s.Ref
	if ref == "" {
		// The commit may be older than the default branch.
		if ref = "HEAD"; fullCommit.MatchString(checksum) {
			ref = checksum
		}
	}
	return []string{"/bin/sh", "-c", gitScript, "git", s.URL, ref, keep}
}

// gitScript fetches a commit. The repository is hostile: no hook, filter or helper that it names is
// run, and no protocol other than HTTP is used. Files get the time of the commit, so that the same
// commit gives the same layer. The index of a kept .git directory has no times or inode numbers of
// this machine for the same reason.
const gitScript = `set -eu
command -v git >/dev/null || { echo "ADD of a repository needs git on this machine: install it (apt-get install git)"; exit 3; }
umask 022
export HOME=/tmp GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0 GIT_ASKPASS=/bin/false GIT_ALLOW_PROTOCOL=https:http GIT_LFS_SKIP_SMUDGE=1
git() { command git -c core.hooksPath=/dev/null -c advice.detachedHead=false -c init.defaultBranch=main -c safe.directory='*' -c gc.auto=0 -c core.fsmonitor=false "$@"; }
mkdir -p /fetched/tree
cd /fetched/tree
git init -q --template=
git remote add origin "$1"
if git fetch -q --depth 1 --no-tags origin "$2" 2>/tmp/fetch-error; then
  commit=$(git rev-parse --verify 'FETCH_HEAD^{commit}')
else
  # A short commit, and a commit that the server does not serve alone, need the whole history.
  git fetch -q --tags origin '+refs/heads/*:refs/remotes/origin/*' || { cat /tmp/fetch-error; exit 1; }
  commit=$(git rev-parse --verify -q "$2^{commit}" || git rev-parse --verify -q "origin/$2^{commit}") || { echo "the repository has no branch, tag or commit $2"; exit 1; }
fi
git checkout -q --detach "$commit"
if [ -e .gitmodules ]; then git submodule --quiet update --init --recursive --depth 1; fi
at=$(git log -1 --format=%ct "$commit")
printf %s "$commit" >/fetched/commit
if [ -n "$3" ]; then
  rm -rf .git/logs .git/FETCH_HEAD .git/ORIG_HEAD .git/index
  git read-tree HEAD
else
  find . -name .git -prune -exec rm -rf {} +
fi
find . -exec touch -h -d "@$at" {} +
`
