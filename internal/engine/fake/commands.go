package fake

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// runCommand runs a simple command with its redirections, or sets a variable.
func (p *processes) runCommand(s *session, words []word) (int, error) {
	var argv []string
	var outputFile, inputFile string
	appends, showErrors := false, true
	for i := 0; i < len(words); i++ {
		w := words[i]
		text, err := expand(w, s.variables)
		if err != nil {
			return 0, err
		}
		if !w.op {
			argv = append(argv, text)
			continue
		}
		switch text {
		case "2>/dev/null":
			showErrors = false
			continue
		case "2>&1":
			continue
		}
		if i++; i == len(words) || words[i].op {
			return 0, errSyntax
		}
		target, err := expand(words[i], s.variables)
		switch {
		case err != nil:
			return 0, err
		case text == "<":
			inputFile = target
		default:
			outputFile, appends = target, text == ">>"
		}
	}
	if len(argv) == 0 {
		argv = []string{":"}
	}
	if name, value, ok := strings.Cut(argv[0], "="); ok && len(argv) == 1 && name != "" {
		s.variables[name] = value
		return 0, nil
	}
	var input *string
	if inputFile != "" {
		text, err := s.b.state.text(s.absolute(inputFile))
		if err != nil {
			fmt.Fprintln(&s.err, err)
			return 1, nil
		}
		input = &text
	}
	sub := *s // collects the output of this command
	sub.out, sub.err = strings.Builder{}, strings.Builder{}
	code, err := p.start(&sub, argv, input)
	s.cwd = sub.cwd
	if showErrors {
		s.err.WriteString(sub.err.String())
	}
	if outputFile == "" {
		s.out.WriteString(sub.out.String())
	} else if err == nil && outputFile != "/dev/null" {
		if err := s.store(s.absolute(outputFile), sub.out.String(), appends); err != nil {
			fmt.Fprintln(&s.err, err)
			return 1, nil
		}
	}
	return code, err
}

// store writes a file, or appends to it.
func (s *session) store(key, text string, appends bool) error {
	if appends {
		before, err := s.b.state.text(key)
		if err == nil {
			text = before + text
		}
	}
	return s.b.state.put(key, file{Type: fileType, Text: text, UID: s.uid(), command: s.command})
}

// builtins lists the commands that run in the shell. Every other program is a separate process.
var builtins = []string{"echo", ":", "test", "[", "exit", "cd"}

// start runs a builtin in the shell, or a program as a process with events.
func (p *processes) start(s *session, argv []string, input *string) (int, error) {
	if slices.Contains(builtins, argv[0]) {
		return s.program(argv, input)
	}
	started, child := time.Now(), *s
	child.out, child.err = strings.Builder{}, strings.Builder{}
	child.pid, child.parent = int(p.last.Add(1))+1, s.pid
	if err := p.b.began(&child, argv); err != nil {
		fmt.Fprintln(&s.err, argv[0]+":", err)
		return 126, nil
	}
	code, err := child.program(argv, input)
	s.out.WriteString(child.out.String())
	s.err.WriteString(child.err.String())
	if err := p.b.ended(&child, code, started); err != nil {
		return 0, err
	}
	return code, err
}

// program runs one program, or one command of the shell. An error means that the fake does not know
// the program. A failure of the program itself is in its exit code.
func (s *session) program(argv []string, input *string) (int, error) {
	args := argv[1:]
	switch name := path.Base(argv[0]); name {
	case "echo":
		fmt.Fprintln(&s.out, strings.Join(args, " "))
	case ":", "true":
	case "false":
		return 1, nil
	case "test", "[":
		return s.test(args)
	case "cd":
		s.cwd = "/" + s.absolute(strings.Join(args, ""))
	case "exit":
		code, err := strconv.Atoi(strings.Join(args, ""))
		if err != nil {
			return 0, errSyntax
		}
		return 0, errExit(code)
	case "sleep":
		d, err := strconv.ParseFloat(strings.Join(args, ""), 64)
		if err != nil {
			return 0, errSyntax
		}
		return 0, errSleep(d * float64(time.Second))
	case "kill":
		if slices.Equal(args, []string{"-9", "1"}) && s.user == "root" {
			return 0, errKilled
		}
		return 0, errSyntax
	default:
		return s.runFileProgram(name, args, input)
	}
	return 0, nil
}

// test implements the commands test and [.
func (s *session) test(args []string) (int, error) {
	if n := len(args); n > 0 && args[n-1] == "]" {
		args = args[:n-1]
	}
	negate := len(args) > 0 && args[0] == "!"
	if negate {
		args = args[1:]
	}
	result := false
	switch {
	case len(args) == 2 && strings.Contains("-e -f -d -s", args[0]):
		s.b.state.mu.Lock()
		f, _, ok := s.b.state.follow(s.absolute(args[1]))
		s.b.state.mu.Unlock()
		result = ok && (args[0] == "-e" || args[0] == "-f" && f.Type == fileType || args[0] == "-d" && f.Type == dirType || args[0] == "-s" && f.Text != "")
	case len(args) == 3 && args[1] == "=":
		result = args[0] == args[2]
	case len(args) == 3 && args[1] == "-lt":
		a, errA := strconv.Atoi(args[0])
		b, errB := strconv.Atoi(args[2])
		if errA != nil || errB != nil {
			return 2, nil
		}
		result = a < b
	default:
		return 0, errSyntax
	}
	if result == negate {
		return 1, nil
	}
	return 0, nil
}

// runFileProgram runs the programs that work on files.
func (s *session) runFileProgram(name string, args []string, input *string) (int, error) {
	var flags string
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		flags, args = flags+args[0][1:], args[1:]
	}
	state, code := s.b.state, 0
	report := func(err error) {
		if err != nil {
			fmt.Fprintf(&s.err, "%s: %v\n", name, err)
			code = 1
		}
	}
	switch {
	case name == "cat" && flags == "" || name == "wc" && flags == "l":
		text := ""
		if input != nil {
			text = *input
		}
		for _, arg := range args {
			content, err := state.text(s.absolute(arg))
			report(err)
			text += content
		}
		if name == "wc" {
			text = strconv.Itoa(strings.Count(text, "\n")) + "\n"
		}
		s.out.WriteString(text)
	case name == "rm" && strings.Trim(flags, "rf") == "":
		for _, arg := range args {
			if err := state.drop(s.absolute(arg), strings.Contains(flags, "r")); !strings.Contains(flags, "f") {
				report(err)
			}
		}
	case name == "mkdir" && flags == "":
		for _, arg := range args {
			report(state.put(s.absolute(arg), file{Type: dirType, UID: s.uid(), command: s.command}))
		}
	case name == "mv" && flags == "" && len(args) == 2:
		report(state.move(s.absolute(args[0]), s.absolute(args[1]), s.command))
	case name == "ln" && flags == "s" && len(args) == 2:
		report(state.put(s.absolute(args[1]), file{Type: linkType, Text: args[0], UID: s.uid(), command: s.command}))
	case name == "readlink" && flags == "" && len(args) == 1:
		state.mu.Lock()
		f := state.files[s.absolute(args[0])]
		state.mu.Unlock()
		if f.Type != linkType {
			return 1, nil
		}
		fmt.Fprintln(&s.out, f.Text)
	default:
		return 0, fmt.Errorf("%w: %s", errSyntax, name)
	}
	return code, nil
}
