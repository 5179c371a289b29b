package drill

import (
	"encoding/xml"
	"io"
)

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string     `xml:"classname,attr"`
	Name    string     `xml:"name,attr"`
	Failure *junitText `xml:"failure,omitempty"`
	Error   *junitText `xml:"error,omitempty"`
	Skipped *junitText `xml:"skipped,omitempty"`
}

type junitText struct {
	Message string `xml:"message,attr"`
}

// WriteJUnit writes a report in the format that CI systems read. A broken defence is a failure, and
// a drill that proves nothing is an error.
func WriteJUnit(w io.Writer, r Report) error {
	suite := junitSuite{Name: "crannog drill", Tests: len(r.Results), Failures: r.Broken, Errors: r.Unproven, Skipped: r.NotRun}
	for _, result := range r.Results {
		c := junitCase{Class: "drill." + result.Engine, Name: result.Name}
		text := &junitText{result.Reason}
		switch result.Verdict {
		case Held:
		case Broken:
			c.Failure = text
		case NotRun:
			c.Skipped = text
		default:
			c.Error = text
		}
		suite.Cases = append(suite.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
