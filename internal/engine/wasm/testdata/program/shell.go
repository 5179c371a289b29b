package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// shell runs the shell commands of the engine rules: lists with ; && ||, negation, while loops,
// variables, sums and redirections. It starts no programs, because WASI has none.
type shell struct {
	vars map[string]string
	out  io.Writer
}

// line runs a line and returns its exit code.
func (s *shell) line(text string) int {
	words := split(text)
	code, rest := s.list(words)
	if len(rest) > 0 {
		return fail("cannot run", rest)
	}
	return code
}

// fail prints an error and returns its exit code.
func fail(args ...any) int {
	fmt.Fprintln(os.Stderr, args...)
	return 2
}

// split returns words and operators. A quoted word is one word.
func split(text string) (words []string) {
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		if i := strings.IndexAny(text, "'\""); i == 0 {
			end := strings.IndexByte(text[1:], text[0]) + 1
			words, text = append(words, text[1:end]), text[end+1:]
			continue
		}
		if op := operator(text); op != "" {
			words, text = append(words, op), text[len(op):]
			continue
		}
		end := 0
		for end < len(text) && text[end] != ' ' && operator(text[end:]) == "" {
			if strings.HasPrefix(text[end:], "$((") {
				end += strings.Index(text[end:], "))") + 1
			}
			end++
		}
		words, text = append(words, text[:end]), text[end:]
	}
	return words
}

// operator returns the operator at the beginning of a text, or "".
func operator(text string) string {
	for _, op := range []string{"2>/dev/null", "2>&1", "&&", "||", ">>", ">", "<", ";", "\n"} {
		if strings.HasPrefix(text, op) {
			return op
		}
	}
	return ""
}

// list runs commands until the end of the line or a word that ends a part of a loop.
func (s *shell) list(words []string) (code int, rest []string) {
	for len(words) > 0 && words[0] != "do" && words[0] != "done" {
		switch words[0] {
		case ";", "\n":
			words = words[1:]
		case "&&", "||":
			skip := (words[0] == "&&") != (code == 0)
			if words = words[1:]; skip {
				words = skipCommand(words)
				continue
			}
			code, words = s.command(words)
		default:
			code, words = s.command(words)
		}
	}
	return code, words
}

// skipCommand returns the words after a command.
func skipCommand(words []string) []string {
	for len(words) > 0 && !endsCommand(words[0]) {
		words = words[1:]
	}
	return words
}

// endsCommand reports whether a word ends a command.
func endsCommand(word string) bool {
	return word == ";" || word == "\n" || word == "&&" || word == "||" || word == "do" || word == "done"
}

// command runs one command or loop, and returns its exit code and the remaining words.
func (s *shell) command(words []string) (int, []string) {
	switch words[0] {
	case "!":
		code, rest := s.command(words[1:])
		if code == 0 {
			return 1, rest
		}
		return 0, rest
	case "while":
		return s.loop(words[1:])
	}
	rest := skipCommand(words)
	return s.simple(words[:len(words)-len(rest)]), rest
}

// loop runs a while loop.
func (s *shell) loop(words []string) (int, []string) {
	for {
		code, body := s.list(words)
		if len(body) == 0 || body[0] != "do" {
			return fail("a loop without do"), nil
		}
		if code != 0 {
			depth := 1
			for body = body[1:]; len(body) > 0 && depth > 0; body = body[1:] {
				switch body[0] {
				case "while":
					depth++
				case "done":
					depth--
				}
			}
			return 0, body
		}
		if _, rest := s.list(body[1:]); len(rest) == 0 || rest[0] != "done" {
			return fail("a loop without done"), nil
		}
	}
}

// simple runs one command with its redirections.
func (s *shell) simple(words []string) int {
	var argv []string
	var out io.Writer = os.Stdout
	for i := 0; i < len(words); i++ {
		switch w := words[i]; w {
		case "2>/dev/null", "2>&1":
		case ">", ">>":
			flag := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
			if w == ">>" {
				flag = os.O_CREATE | os.O_WRONLY | os.O_APPEND
			}
			i++
			f, err := os.OpenFile(s.expand(words[i]), flag, 0o644)
			if err != nil {
				fail(err)
				return 1
			}
			defer f.Close()
			out = f
		default:
			argv = append(argv, s.expand(w))
		}
	}
	if name, value, ok := strings.Cut(argv[0], "="); ok && len(argv) == 1 {
		s.vars[name] = value
		return 0
	}
	if err := s.builtin(out, argv[0], argv[1:]); err != nil {
		fmt.Fprintln(os.Stderr, argv[0]+":", err)
		return 1
	}
	return 0
}

// expand replaces variables and arithmetic expressions.
func (s *shell) expand(word string) string {
	for name, value := range s.vars {
		word = strings.ReplaceAll(word, "$(("+name+"+1))", increment(value))
		word = strings.ReplaceAll(word, "$"+name, value)
	}
	return word
}

// increment returns a number plus one.
func increment(value string) string {
	n, _ := strconv.Atoi(value)
	return strconv.Itoa(n + 1)
}

// errCode is the exit code of a command that failed.
type errCode int

func (e errCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// builtin runs a command of the shell.
func (s *shell) builtin(out io.Writer, name string, args []string) error {
	var flags string
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' && name != "test" && name != "[" {
		flags, args = flags+args[0][1:], args[1:]
	}
	switch name {
	case ":", "true":
	case "echo":
		_, err := fmt.Fprintln(out, strings.Join(args, " "))
		return err
	case "cat":
		for _, path := range args {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if _, err := out.Write(data); err != nil {
				return err
			}
		}
	case "cd":
		return os.Chdir(args[0])
	case "exit":
		code, _ := strconv.Atoi(args[0])
		os.Exit(code)
	case "rm":
		for _, path := range args {
			remove := os.Remove
			if strings.Contains(flags, "r") {
				remove = os.RemoveAll
			}
			if err := remove(path); err != nil && !strings.Contains(flags, "f") {
				return err
			}
		}
	case "mv":
		return os.Rename(args[0], args[1])
	case "sleep":
		seconds, err := strconv.ParseFloat(args[0], 64)
		time.Sleep(time.Duration(seconds * float64(time.Second)))
		return err
	case "test", "[":
		return test(args)
	default:
		return errCode(127)
	}
	return nil
}

// test evaluates a condition.
func test(args []string) error {
	if args[len(args)-1] == "]" {
		args = args[:len(args)-1]
	}
	not := args[0] == "!"
	if not {
		args = args[1:]
	}
	var holds bool
	if len(args) == 3 {
		a, _ := strconv.Atoi(args[0])
		b, _ := strconv.Atoi(args[2])
		holds = args[1] == "=" && args[0] == args[2] || args[1] == "-lt" && a < b
	} else {
		info, err := os.Stat(args[1])
		holds = err == nil && (args[0] == "-e" || args[0] == "-f" && info.Mode().IsRegular() || args[0] == "-d" && info.IsDir())
	}
	if holds == not {
		return errCode(1)
	}
	return nil
}
