package dockerfile_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/crannog/crannog/internal/build/dockerfile"
	"github.com/crannog/crannog/internal/fault"
)

// plan returns the plan of a Dockerfile.
func plan(t *testing.T, text string, o dockerfile.Options) *dockerfile.Plan {
	t.Helper()
	f, err := dockerfile.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if o.Platform == "" {
		o.Platform = "linux/amd64"
	}
	p, err := f.Plan(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPlanContainsOnlyNeededStages(t *testing.T) {
	p := plan(t, "ARG BASE=one\nARG VERSION\nFROM ${BASE}:${VERSION:-7} AS Tools\nFROM scratch AS unused\nFROM tools AS lib\n"+
		"FROM scratch AS data\nFROM scratch\nCOPY --from=lib / /\nCOPY --from=3 / /\nCOPY --from=other:1 / /\n", dockerfile.Options{Args: map[string]string{"BASE": "two"}})
	var indexes []int
	for i := range p.Stages {
		indexes = append(indexes, i)
	}
	slices.Sort(indexes)
	if p.Target != 4 || !slices.Equal(indexes, []int{0, 2, 3, 4}) {
		t.Errorf("got target %d, stages %v, want 4, [0 2 3 4]", p.Target, indexes)
	}
	if p.Stages[0].Base != "two:7" || p.Stages[2].Parent != 0 || !slices.Equal(p.Stages[4].Needs, []int{2, 3}) {
		t.Errorf("got stages %+v, %+v, %+v", p.Stages[0], p.Stages[2], p.Stages[4])
	}
	if _, stage := p.From(4, "other:1"); stage {
		t.Error("From returned a stage for an image")
	}
}

func TestPlanFindsTarget(t *testing.T) {
	const text = "FROM a AS First\nFROM b AS second\n"
	for target, want := range map[string]int{"first": 0, "FIRST": 0, "1": 1, "": 1} {
		if p := plan(t, text, dockerfile.Options{Target: target}); p.Target != want || len(p.Stages) != 1 {
			t.Errorf("target %q: got stage %d of %d stages", target, p.Target, len(p.Stages))
		}
	}
	f, err := dockerfile.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"third", "2", "-1"} {
		if _, err := f.Plan(dockerfile.Options{Target: target, Platform: "linux/amd64"}); fault.CodeOf(err) != "build_target_unknown" {
			t.Errorf("Plan with target %q: got %v, want build_target_unknown", target, err)
		}
	}
}

func TestInvalidDockerfileErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "no",
		"RUN true":                            "no build stage",
		"FROM a\nNONSENSE x":                  "unknown instruction",
		"FROM a\nCOPY x":                      "at least two",
		"FROM $NONE":                          "names no image",
		"FROM a AS x\nCOPY --from=x a b":      "own stage",
		"FROM a\nCOPY --from=5 a b":           "not refer to an earlier stage",
		"FROM a\nRUN --network=moon true":     "network",
		"FROM a\nRUN --mount=type=wrong true": "mount type",
	} {
		f, err := dockerfile.Parse([]byte(text))
		if err == nil {
			_, err = f.Plan(dockerfile.Options{Platform: "linux/amd64"})
		}
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(strings.ToLower(err.Error()), want) {
			t.Errorf("Dockerfile %q: got error %v, want %q in it", text, err, want)
		}
	}
	if _, err := dockerfile.Parse(make([]byte, 2<<20)); fault.CodeOf(err) != dockerfile.CodeInvalid {
		t.Errorf("Parse of a huge file: got %v", err)
	}
}

func TestArguments(t *testing.T) {
	p := plan(t, "ARG G=global\nFROM a\nARG G\nARG L=$G-local\nARG TARGETARCH\nARG NONE\nARG GIVEN=x\n", dockerfile.Options{Args: map[string]string{"GIVEN": "y", "http_proxy": "p", "OTHER": "o"}})
	env := map[string]string{}
	for _, c := range p.Stages[0].Commands {
		if err := p.Expand(c, dockerfile.Environ(env)); err != nil {
			t.Fatal(err)
		}
		arg, ok := c.(*instructions.ArgCommand)
		if !ok {
			t.Fatalf("got an instruction of type %T, want ArgCommand", c)
		}
		for _, a := range arg.Args {
			if v, ok := p.Argument(a); ok {
				env[a.Key] = v
			}
		}
	}
	if got := strings.Join(dockerfile.Environ(env), " "); got != "G=global GIVEN=y L=global-local TARGETARCH=amd64" {
		t.Errorf("arguments: got %s", got)
	}
	if proxies := p.Proxies(); len(proxies) != 1 || proxies["http_proxy"] != "p" {
		t.Errorf("Proxies: got %v, want only http_proxy", proxies)
	}
}

func TestScriptOf(t *testing.T) {
	for text, want := range map[string]dockerfile.Script{
		"RUN echo a  b":                  {Args: []string{"/bin/sh", "-c", "echo a  b"}},
		"RUN [\"echo\", \"a b\"]":        {Args: []string{"echo", "a b"}},
		"RUN <<EOF\necho a\necho b\nEOF": {Args: []string{"/bin/sh", "-c", "echo a\necho b\n"}},
		"RUN <<EOF\n#!/bin/awk\nx\nEOF":  {File: "#!/bin/awk\nx\n"},
		"RUN cat <<A <<B\n1\nA\n2\nB":    {Args: []string{"/bin/sh", "-c", "cat <<A <<B\n1\nA\n2\nB"}},
	} {
		p := plan(t, "FROM a\n"+text+"\n", dockerfile.Options{})
		run, ok := p.Stages[0].Commands[0].(*instructions.RunCommand)
		if !ok {
			t.Fatalf("%q is no RUN", text)
		}
		got, err := dockerfile.ScriptOf(run, nil)
		if err != nil || got.File != want.File || !slices.Equal(got.Args, want.Args) {
			t.Errorf("ScriptOf(%q): got %q, error %v", text, got, err)
		}
	}
	if got := dockerfile.WithShell([]string{"a", "b"}, true, []string{"bash", "-ec"}); !slices.Equal(got, []string{"bash", "-ec", "a b"}) {
		t.Errorf("WithShell: got %q, want one word for the command", got)
	}
}

func TestParseReturnsLinterWarnings(t *testing.T) {
	f, err := dockerfile.Parse([]byte("from a AS b\nMAINTAINER x\n"))
	if err != nil {
		t.Fatal(err)
	}
	var rules []string
	for _, w := range f.Warnings {
		rules = append(rules, w.Rule)
	}
	if !slices.Contains(rules, "MaintainerDeprecated") {
		t.Errorf("Parse: got warnings %+v, want MaintainerDeprecated", f.Warnings)
	}
}

func TestParseOne(t *testing.T) {
	if c, err := dockerfile.ParseOne("RUN echo x"); err != nil || !strings.EqualFold(c.Name(), "run") {
		t.Errorf("ParseOne: got %v, error %v", c, err)
	}
	for _, text := range []string{"", "RUN a\nRUN b", "FROM x"} {
		if _, err := dockerfile.ParseOne(text); err == nil {
			t.Errorf("ParseOne(%q): got no error", text)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("ARG A=b\nFROM $A AS x\nRUN --mount=type=bind,from=x true\n")
	f.Add("FROM scratch\nCOPY <<EOF /x\n$A\nEOF\n")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := dockerfile.Parse([]byte(text))
		if err != nil {
			return
		}
		p, err := file.Plan(dockerfile.Options{Platform: "linux/amd64"})
		if err == nil && p.Stages[p.Target] == nil {
			t.Error("the target is not planned")
		}
	})
}

// Plan rejects an ADD that cannot be built, so that no step runs before. It ignores stages that are
// not needed.
func TestPlanRejectsInvalidRemoteAdd(t *testing.T) {
	for text, want := range map[string]string{
		"FROM a\nRUN x\nADD ftp://example.com/f /f\n":                          "line 3: ADD: \"ftp://example.com/f\"",
		"FROM a\nADD git@example.com:x.git /f\n":                               "git@example.com",
		"FROM a\nARG U=ftp://e.example\nADD ${U}/f /f\n":                       "ftp://e.example/f",
		"FROM a\nENV U=ftp://e.example\nADD $U/f /f\n":                         "ftp://e.example/f",
		"FROM a\nADD --checksum=sha256:" + strings.Repeat("a", 64) + " f /f\n": "--checksum",
	} {
		f, err := dockerfile.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Plan(dockerfile.Options{Platform: "linux/amd64"}); fault.CodeOf(err) != dockerfile.CodeInvalid || !strings.Contains(fault.PublicText(err), want) {
			t.Errorf("Plan(%q): error %v, want %q in it", text, err, want)
		}
	}
	plan(t, "FROM a AS unused\nADD ftp://example.com/f /f\nFROM b\nADD f $UNKNOWN /f/\n", dockerfile.Options{})
}
