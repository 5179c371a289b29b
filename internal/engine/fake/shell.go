package fake

import (
	"errors"
	"strings"
	"unicode"
)

// This file parses the language of the fake's shell, whose commands run in this process and on
// files in memory. The shell supports lists with ; && || and &, while loops, variables, arithmetic,
// quotes and redirections, and the programs of commands.go. All other syntax is an error.

// node is a node of the syntax tree: a list, a loop or a command.
type node struct {
	op     string // ";", "&&", "||", "&", "!", "while" or "command"
	left   *node  // of an operator; the condition of a loop
	right  *node  // of an operator; the body of a loop
	words  []word
	source string // of a loop: the text with which it is started again
}

// word is a word of a command, as quoted and unquoted pieces.
type word struct {
	pieces []piece
	op     bool // an operator or the end of a line, not a word
}

// piece is a part of a word with one kind of quotes.
type piece struct {
	text    string
	literal bool // in single quotes, so that nothing is replaced
}

// plain returns the text of a word without replacing variables.
func (w word) plain() string {
	var text strings.Builder
	for _, p := range w.pieces {
		text.WriteString(p.text)
	}
	return text.String()
}

var errSyntax = errors.New("the shell of the fake does not support this syntax")

// operators lists the operators in the order in which they are matched: longer ones first.
var operators = []string{"2>&1", "2>/dev/null", "&&", "||", ">>", ";", "&", ">", "<", "\n"}

// tokens splits a line into words and operators.
func tokens(line string) (list []word, err error) {
	var current word
	started := false
	end := func() {
		if started {
			list = append(list, current)
		}
		current, started = word{}, false
	}
scan:
	for len(line) > 0 {
		if c := rune(line[0]); c == '\'' || c == '"' {
			text, rest, ok := strings.Cut(line[1:], string(c))
			if !ok {
				return nil, errSyntax
			}
			current.pieces, started, line = append(current.pieces, piece{text, c == '\''}), true, rest
			continue
		}
		for _, op := range operators {
			if strings.HasPrefix(line, op) && (!started || op[0] != '2') {
				end()
				list = append(list, word{pieces: []piece{{op, true}}, op: true})
				line = line[len(op):]
				continue scan
			}
		}
		size := 1
		if strings.HasPrefix(line, "$((") {
			if size = strings.Index(line, "))") + 2; size < 2 {
				return nil, errSyntax
			}
		} else if unicode.IsSpace(rune(line[0])) {
			end()
			line = line[1:]
			continue
		} else if strings.ContainsRune("|(){}`", rune(line[0])) {
			return nil, errSyntax
		}
		if n := len(current.pieces); n > 0 && started && !current.pieces[n-1].literal {
			current.pieces[n-1].text += line[:size]
		} else {
			current.pieces = append(current.pieces, piece{text: line[:size]})
		}
		started, line = true, line[size:]
	}
	end()
	return list, nil
}

// parser reads tokens into nodes.
type parser struct{ tokens []word }

// parse returns the syntax tree of a command line.
func parse(line string) (*node, error) {
	list, err := tokens(line)
	if err != nil {
		return nil, err
	}
	p := &parser{list}
	n, err := p.list()
	if err == nil && len(p.tokens) > 0 {
		err = errSyntax
	}
	return n, err
}

// peek returns the text of the next token, or "".
func (p *parser) peek() string {
	if len(p.tokens) == 0 {
		return ""
	}
	return p.tokens[0].plain()
}

// list parses commands until the end or a word that ends a part of a loop.
func (p *parser) list() (*node, error) {
	var all *node
	for len(p.tokens) > 0 && p.peek() != "do" && p.peek() != "done" {
		if p.tokens[0].op && (p.peek() == ";" || p.peek() == "\n") {
			p.tokens = p.tokens[1:]
			continue
		}
		next, err := p.chain()
		if err != nil {
			return nil, err
		}
		if p.peek() == "&" {
			p.tokens = p.tokens[1:]
			next = &node{op: "&", left: next}
		}
		if all == nil {
			all = next
		} else {
			all = &node{op: ";", left: all, right: next}
		}
	}
	if all == nil {
		return nil, errSyntax
	}
	return all, nil
}

// chain parses commands that are joined by && and ||.
func (p *parser) chain() (*node, error) {
	all, err := p.command()
	for err == nil && (p.peek() == "&&" || p.peek() == "||") {
		op := p.peek()
		p.tokens = p.tokens[1:]
		var next *node
		next, err = p.command()
		all = &node{op: op, left: all, right: next}
	}
	return all, err
}

// command parses one command, which may be a loop or negated.
func (p *parser) command() (*node, error) {
	if p.peek() == "while" {
		return p.loop()
	}
	if p.peek() == "!" {
		p.tokens = p.tokens[1:]
		n, err := p.command()
		return &node{op: "!", left: n}, err
	}
	n := &node{op: "command"}
	for len(p.tokens) > 0 {
		w := p.tokens[0]
		if text := w.plain(); w.op && (text == ";" || text == "\n" || text == "&" || text == "&&" || text == "||") {
			break
		}
		n.words, p.tokens = append(n.words, w), p.tokens[1:]
	}
	if len(n.words) == 0 {
		return nil, errSyntax
	}
	return n, nil
}

// loop parses a while loop.
func (p *parser) loop() (*node, error) {
	fromHere := p.tokens
	p.tokens = p.tokens[1:]
	n := &node{op: "while"}
	var err error
	if n.left, err = p.list(); err != nil || p.peek() != "do" {
		return nil, errSyntax
	}
	p.tokens = p.tokens[1:]
	if n.right, err = p.list(); err != nil || p.peek() != "done" {
		return nil, errSyntax
	}
	p.tokens = p.tokens[1:]
	n.source = source(fromHere[:len(fromHere)-len(p.tokens)])
	// The output of a loop is ignored, because it runs in the background.
	for len(p.tokens) > 0 && p.tokens[0].op && strings.ContainsAny(p.peek(), "<>") {
		target := !strings.HasPrefix(p.peek(), "2")
		if p.tokens = p.tokens[1:]; target && len(p.tokens) > 0 {
			p.tokens = p.tokens[1:]
		}
	}
	return n, nil
}

// source returns a text that the parser reads as the same tokens.
func source(list []word) string {
	var text strings.Builder
	for _, w := range list {
		for _, p := range w.pieces {
			quote := `"`
			if w.op {
				quote = ""
			} else if p.literal {
				quote = "'"
			}
			if reserved := p.text == "while" || p.text == "do" || p.text == "done" || p.text == "!"; reserved {
				quote = ""
			}
			text.WriteString(quote + p.text + quote)
		}
		text.WriteString(" ")
	}
	return text.String()
}
