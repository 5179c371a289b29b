# The bash worker: an interactive shell without a terminal, so that an
# interrupt ends the command and not the shell. It reads these lines and then
# requests from standard input. It sends messages to descriptor 60, which is
# closed while code runs and above the descriptors that code usually uses.
PS1= PS2= PS4='+ '
export -n PS1
unset PROMPT_COMMAND MAILCHECK HISTFILE TMOUT
set +o history +o histexpand
exec 60>&4 4>&- 5>&-

# __crannog_set NAME VALUE...: sets variables for one request, and stores the
# commands that restore them.
__crannog_set() {
    local __crannog_status=$?
    __crannog_undo=
    while (($# > 1)); do
        if [[ $1 != [a-zA-Z_]* || $1 == *[!a-zA-Z0-9_]* ]]; then
            printf 'bash: %q cannot be the name of a variable of the shell\n' "$1" >&2
        else
            if [[ -v $1 ]]; then
                __crannog_undo+="$1=${!1@Q};"
                [[ ${!1@a} == *x* ]] || __crannog_undo+="export -n $1;"
            else
                __crannog_undo+="unset -v $1;"
            fi
            export "$1=$2"
        fi
        shift 2
    done
    return "$__crannog_status"
}

# __crannog_renew SEED FROM-DIRECTORY TO-DIRECTORY [NAME WAS OLD IS NEW]...:
# changes the directory and variables to those of the new configuration, unless
# code has changed them. A SEED of 0 means none. WAS and IS are 1 if the
# variable had or gets a value, otherwise 0.
__crannog_renew() {
    local __crannog_status=$?
    (($1 == 0)) || RANDOM=$1
    [[ -z $3 || $PWD != "$2" ]] || builtin cd -- "$3" >/dev/null
    shift 3
    while (($# > 4)); do
        if [[ $1 == [a-zA-Z_]* && $1 != *[!a-zA-Z0-9_]* ]]; then
            if { (($2)) && [[ -v $1 && ${!1} == "$3" ]]; } || { ((!$2)) && [[ ! -v $1 ]]; }; then
                if (($4)); then export "$1=$5"; else unset -v "$1"; fi
            fi
        fi
        shift 5
    done
    return "$__crannog_status"
}

# __crannog_done NUMBER STATUS: reports that a request is finished.
__crannog_done() {
    builtin eval "${__crannog_undo-}"
    __crannog_undo=
    builtin printf '{"type":"done","n":%d,"status":%d}\n' "$1" "$2" >&60
    return "$2"
}

builtin printf '{"type":"ready"}\n' >&60
