package policy

import (
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/egress"
)

// Case is a request and its expected outcome.
type Case struct {
	// A method and a URL, such as GET https://example.com/a. The schemes are https, http, wss and
	// ws.
	Request string `yaml:"request,omitempty" json:"request,omitempty"`
	// A host and a port, for a connection that is not inspected.
	Connect string `yaml:"connect,omitempty" json:"connect,omitempty"`
	// allow, ask or deny.
	Expect egress.Effect `yaml:"expect" json:"expect"`
	// The rule that must decide. Default is any.
	Rule string `yaml:"rule,omitempty" json:"rule,omitempty"`
}

// Result is the outcome of a case.
type Result struct {
	Case
	Line int             `json:"line"`
	Got  egress.Decision `json:"got"`
	OK   bool            `json:"ok"`
}

// RunCases applies a policy to the cases of a file. It returns an error only about the file. A case
// that fails is a Result that is not OK.
func RunCases(p *Policy, text []byte) ([]Result, error) {
	var file struct {
		Cases []Case `yaml:"cases"`
	}
	root, err := decode(text, &file)
	if err != nil {
		return nil, err
	}
	c := &checker{lines: map[string]int{}}
	recordLines(root, "", c.lines)
	if len(file.Cases) == 0 {
		c.bad("cases", "there are none, and a test that tests nothing always passes")
	}
	var out []Result
	for i, testCase := range file.Cases {
		field := "cases[" + strconv.Itoa(i) + "]"
		if testCase.Expect == "" {
			c.bad(field+".expect", "is missing: allow, ask or deny")
		}
		c.effect(field+".expect", testCase.Expect)
		r, err := testCase.request()
		if err != nil {
			c.bad(field, "%v", err)
			continue
		}
		d := p.Connect(r.Host, r.Port).Decision
		if r.Method != "" {
			d, _ = p.Request(r)
		}
		out = append(out, Result{testCase, c.line(field), d, d.Effect == testCase.Expect && (testCase.Rule == "" || testCase.Rule == d.Rule)})
	}
	return out, c.err()
}

func (c Case) request() (Request, error) {
	if (c.Request == "") == (c.Connect == "") {
		return Request{}, invalid("needs either request or connect")
	}
	if c.Connect != "" {
		host, number, err := net.SplitHostPort(c.Connect)
		n, bad := port(number)
		if err != nil || bad != nil {
			return Request{}, invalid("connect is a host and a port, such as example.com:5432")
		}
		return Request{Host: host, Port: n}, nil
	}
	return ParseRequest(c.Request)
}

// ParseRequest parses a request such as: GET https://host/path.
func ParseRequest(s string) (Request, error) {
	method, address, ok := strings.Cut(s, " ")
	u, err := url.Parse(strings.TrimSpace(address))
	if !ok || err != nil || u.Host == "" || u.User != nil {
		return Request{}, invalid(strconv.Quote(clip(s)) + " is not a method and a URL, such as GET https://example.com/a")
	}
	r := Request{Host: u.Hostname(), Method: method, Path: u.EscapedPath()}
	if r.Path == "" {
		r.Path = "/"
	}
	switch u.Scheme {
	case "https", "wss":
		r.Port, r.TLS = 443, true
	case "http", "ws":
		r.Port = 80
	default:
		return Request{}, invalid(strconv.Quote(clip(u.Scheme)) + " is none of https, http, wss, ws")
	}
	r.WebSocket = u.Scheme == "wss" || u.Scheme == "ws"
	if u.Port() != "" {
		if r.Port, err = port(u.Port()); err != nil {
			return Request{}, invalid(strconv.Quote(clip(u.Port())) + " is not a port")
		}
	}
	return r, nil
}
