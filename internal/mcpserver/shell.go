package mcpserver

import "github.com/crannog/crannog/internal/fault"

// shellState is the directory in a sandbox for the state of its shell.
const shellState = "/tmp/.crannog-shell"

// shellScript runs one command like the next line of one continuous shell, with the directory,
// variables and functions that the last command left. But each command has a shell of its own, so
// that one that hangs or runs in the background does not block others. The state is a file in the
// sandbox, so that it is rolled back and copied with the sandbox.
//
// $1 is the path of that file, $2 the name of this call, $3 the directory or "", $4 "keep" or
// "leave", $5 the command. The file begins with the name of the call that wrote it: if another call
// has written it since this one read it, this one does not write. It is read only inside; a program
// that forges it affects only its own sandbox. It is replaced atomically, because another call may
// be reading it.
//
// At its end the shell prints the name of the call, because its output stays open for as long as
// any process that it started in the background. It adds "left" if the last of them still runs: only
// then does the end of the output say nothing about the end of the command.
const shellScript = `
if [ -r "$1" ]; then . "$1" >/dev/null 2>&1; else cd /workspace 2>/dev/null; fi
__crannog_state=$1 __crannog_call=$2 __crannog_keep=$4 __crannog_code=$5 __crannog_seen=
[ -r "$1" ] && IFS= read -r __crannog_seen <"$1"
[ -n "${EPOCHREALTIME-}" ] && eval 'RANDOM=$((10#${EPOCHREALTIME##*[.,]}))'
if [ -n "$3" ]; then cd -- "$3" || exit 1; fi
__crannog_save() {
  [ "$__crannog_keep" = keep ] || return 0
  __crannog_keep=leave __crannog_now=
  [ -r "$__crannog_state" ] && IFS= read -r __crannog_now <"$__crannog_state"
  [ "$__crannog_now" = "$__crannog_seen" ] || return 0
  {
    echo "# $__crannog_call"
    if [ -n "${BASH_VERSION-}" ]; then
      declare -p; declare -f; printf 'cd -- %q\n' "$PWD"
    else
      export -p; echo "cd -- '$(pwd | sed "s/'/'\\\\''/g")'"
    fi
  } 2>/dev/null >|"$__crannog_state.$__crannog_call" && command mv -f "$__crannog_state.$__crannog_call" "$__crannog_state" 2>/dev/null
}
__crannog_end() {
  __crannog_status=$? __crannog_left=
  [ -n "${!-}" ] && command kill -0 "$!" 2>/dev/null && __crannog_left=' left'
  __crannog_save
  printf '\036%s %d%s\036' "$__crannog_call" "$__crannog_status" "$__crannog_left" >&2
}
trap __crannog_end EXIT
set --
eval "$__crannog_code"
`

// maxCommand bounds a command: a program's argument has at most 128 KiB.
const maxCommand = 100_000

// shellCommand returns the arguments of a program that runs a command in the sandbox's shell.
func shellCommand(shell, name, code, dir string, keep bool) ([]string, error) {
	if len(code) > maxCommand {
		return nil, fault.Newf(fault.Exhausted, "command_too_long", "the command is longer than %d bytes", maxCommand).
			WithHint("write it to a file with write_file and run that")
	}
	mode := "leave"
	if keep {
		mode = "keep"
	}
	return []string{shell, "-c", shellScript, shell, shellState, name, dir, mode, code}, nil
}
