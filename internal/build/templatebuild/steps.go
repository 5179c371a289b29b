package templatebuild

import (
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/crannog/crannog/internal/build/dockerfile"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/host/pattern"
)

// Step is an instruction of E2B's API: COPY, ADD, RUN, ENV, WORKDIR or USER, with its arguments.
type Step struct {
	Kind  string
	Args  []string
	Files string // the hash of the files that COPY or ADD copies
	Force bool   // run it even if the cache has its result
}

// Limits of a client's steps: their number, and the arguments of each.
const (
	maxSteps   = 500
	maxArgs    = 512
	maxArgText = 128 << 10
)

// Names of E2B's clients for failures outside the client's own steps.
const (
	baseStep  = "base"
	finalStep = "finalize"
)

// plan collects the instructions of a build.
type plan struct {
	steps   []dockerfile.Step
	numbers []string // the client's step to which each instruction belongs
	user    string   // current user
	ownHome bool     // a step has set HOME
	force   bool     // of the whole build
	files   []string // hashes
}

// invalidStep returns the error for a step that cannot be built.
func invalidStep(number int, format string, args ...any) error {
	return fault.Newf(fault.Invalid, "build_step_invalid", "step "+strconv.Itoa(number)+": "+format, args...)
}

// add adds an instruction of a client's step.
func (p *plan) add(number, title string, fresh bool, c instructions.Command) {
	p.steps = append(p.steps, dockerfile.Step{Command: c, Title: title, Fresh: fresh || p.force})
	p.numbers = append(p.numbers, number)
}

// accountScript creates an account unless the image has it. The account "user" has the number that
// the server's own sandboxes give it. With a second argument, sudo asks the account for no
// password.
const accountScript = `set -e
name=$1 have= number=NUMBER
mkdir -p /etc /home
touch /etc/passwd /etc/group
while IFS=: read -r one secret id rest; do
	if [ "$one" = "$name" ]; then have=1; fi
	case $id in
	"" | *[!0-9]*) ;;
	*) if [ "$name" != user ] && [ "$id" -ge "$number" ] && [ "$id" -lt 60000 ]; then number=$((id + 1)); fi ;;
	esac
done </etc/passwd
shell=/bin/sh
if [ -x /bin/bash ]; then shell=/bin/bash; fi
if [ -n "$have" ]; then :
elif [ "$name" != user ] && command -v useradd >/dev/null; then useradd -m -s "$shell" "$name"
else
	echo "$name:x:$number:$number:$name:/home/$name:$shell" >>/etc/passwd
	echo "$name:x:$number:" >>/etc/group
	if [ -f /etc/shadow ]; then echo "$name:*:::::::" >>/etc/shadow; fi
	mkdir -p "/home/$name"
	chown "$number:$number" "/home/$name"
fi
if [ -n "$2" ] && [ -d /etc/sudoers.d ]; then
	echo "$name ALL=(ALL:ALL) NOPASSWD: ALL" >"/etc/sudoers.d/$name"
	chmod 440 "/etc/sudoers.d/$name"
fi
`

// loginScript runs a command in a login shell, as E2B does: in bash if the image has it.
const loginScript = `if [ -x /bin/bash ]; then exec /bin/bash -l -c "$1"; fi; exec /bin/sh -l -c "$1"`

// loginCommand returns the words that run a command in a login shell.
func loginCommand(command string) []string {
	return []string{"/bin/sh", "-c", loginScript, "sh", command}
}

// run adds a RUN without a shell.
func (p *plan) run(number, title string, fresh bool, args ...string) error {
	c, err := dockerfile.RunArgs(args...)
	if err != nil {
		return err
	}
	p.add(number, title, fresh, c)
	return nil
}

// setUser changes the user of the following instructions.
func (p *plan) setUser(number, name string) {
	p.user = name
	p.add(number, "USER "+name, false, &instructions.UserCommand{User: literal(name)})
}

// account creates an account as root, and makes it the user of the following instructions.
func (p *plan) account(number, name string, sudo, fresh bool) error {
	if _, err := strconv.ParseUint(name, 10, 32); err != nil && name != "root" {
		yes := ""
		if sudo {
			yes = "yes"
		}
		p.setUser(number, "root")
		script := strings.ReplaceAll(accountScript, "NUMBER", strconv.Itoa(engine.UserID))
		if err := p.run(number, "USER "+name, fresh, "/bin/sh", "-c", script, "sh", name, yes); err != nil {
			return err
		}
	}
	p.setUser(number, name)
	return nil
}

// literal protects a word from the replacement of variables.
func literal(word string) string {
	return strings.NewReplacer(`\`, `\\`, `$`, `\$`).Replace(word)
}

// defaults adds the instructions with which E2B starts from an image: the account "user", and its
// home as the working directory.
func (p *plan) defaults() error {
	if err := p.account(baseStep, "user", true, false); err != nil {
		return err
	}
	p.add(baseStep, "WORKDIR /home/user", false, &instructions.WorkdirCommand{Path: "/home/user"})
	return nil
}

// inherit adds the user, the directory and the variables of the template that is built on.
func (p *plan) inherit(user, dir string, env map[string]string) {
	p.setUser(baseStep, user)
	if dir != "" {
		p.add(baseStep, "WORKDIR "+dir, false, &instructions.WorkdirCommand{Path: literal(dir)})
	}
	c := &instructions.EnvCommand{}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		c.Env = append(c.Env, instructions.KeyValuePair{Key: literal(name), Value: literal(env[name])})
	}
	if len(c.Env) > 0 {
		p.add(baseStep, "ENV", false, c)
	}
}

// step adds a step of the client.
func (p *plan) step(n int, s Step) error {
	number := strconv.Itoa(n)
	if len(s.Args) > maxArgs || len(strings.Join(s.Args, "")) > maxArgText || strings.ContainsRune(strings.Join(s.Args, ""), 0) {
		return invalidStep(n, "its arguments are too long, or have a NUL")
	}
	arg := func(i int) string {
		if i < len(s.Args) {
			return s.Args[i]
		}
		return ""
	}
	switch s.Kind {
	case "RUN":
		if arg(0) == "" {
			return invalidStep(n, "RUN has no command")
		}
		before := p.user
		if user := arg(1); user != "" && user != before {
			p.setUser(number, user)
		}
		if err := p.run(number, "RUN "+arg(0), s.Force, loginCommand(arg(0))...); err != nil {
			return err
		}
		if p.user != before {
			p.setUser(number, before)
		}
	case "USER":
		if arg(0) == "" || strings.ContainsAny(arg(0), ": \t\n/") {
			return invalidStep(n, "USER has no name of an account")
		}
		return p.account(number, arg(0), arg(1) == "true", s.Force)
	case "WORKDIR":
		if arg(0) == "" {
			return invalidStep(n, "WORKDIR has no path")
		}
		p.add(number, "WORKDIR "+arg(0), s.Force, &instructions.WorkdirCommand{Path: arg(0)})
	case "ENV":
		return p.env(n, s)
	case "COPY", "ADD":
		return p.copy(n, s, arg)
	default:
		return invalidStep(n, "%.50q is none of COPY, ADD, RUN, ENV, WORKDIR and USER", s.Kind)
	}
	return nil
}

// homeVariable matches the variable HOME, which a login sets, but no image.
var homeVariable = pattern.New(`\$HOME\b|\$\{HOME\}`)

// homeOf returns the home directory of an account.
func homeOf(user string) string {
	if user == "root" {
		return "/root"
	}
	return "/home/" + user
}

// env adds an ENV.
func (p *plan) env(n int, s Step) error {
	if len(s.Args) == 0 || len(s.Args)%2 != 0 {
		return invalidStep(n, "ENV has no pairs of names and values")
	}
	c := &instructions.EnvCommand{}
	title := []string{"ENV"}
	for pair := range slices.Chunk(s.Args, 2) {
		if pair[0] == "" || strings.ContainsAny(pair[0], "=$\\ \t\n") {
			return invalidStep(n, "%.100q cannot be the name of a variable", pair[0])
		}
		value := pair[1]
		if p.ownHome = p.ownHome || pair[0] == "HOME"; !p.ownHome {
			value = homeVariable.Regexp().ReplaceAllLiteralString(value, literal(homeOf(p.user)))
		}
		c.Env = append(c.Env, instructions.KeyValuePair{Key: pair[0], Value: value})
		title = append(title, pair[0])
	}
	p.add(strconv.Itoa(n), strings.Join(title, " "), s.Force, c)
	return nil
}

// wildcard matches the beginning of a wildcard that the clients support, but a Dockerfile does not.
var wildcard = pattern.New(`\*\*|\{|[!+@*?]\(`)

// copy adds a COPY. The upload has only the files that match the source, by their paths below the
// client's directory. So a pattern that a Dockerfile does not support is replaced by the directory
// before it.
func (p *plan) copy(n int, s Step, arg func(int) string) error {
	switch {
	case !hashForm.MatchString(s.Files):
		return invalidStep(n, "%s has no digest of its files", s.Kind)
	case arg(0) == "" || arg(1) == "":
		return invalidStep(n, "%s has no source and destination", s.Kind)
	}
	source := strings.TrimPrefix(path.Clean("/"+arg(0)), "/")
	if at := wildcard.Regexp().FindStringIndex(source); at != nil {
		source = source[:strings.LastIndex(source[:at[0]], "/")+1]
	}
	owner := arg(2)
	if owner == "" && p.user != "root" {
		owner = p.user
	}
	if !slices.Contains(p.files, s.Files) {
		p.files = append(p.files, s.Files)
	}
	p.add(strconv.Itoa(n), s.Kind+" "+arg(0)+" "+arg(1), s.Force, &instructions.CopyCommand{
		SourcesAndDest: instructions.SourcesAndDest{SourcePaths: []string{literal(path.Join(s.Files, source))}, DestPath: arg(1)},
		Chown:          literal(owner), Chmod: arg(3),
	})
	return nil
}
