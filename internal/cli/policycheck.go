package cli

import (
	"cmp"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/internal/egress/policy"
)

// policyFinding is one line of policy check.
type policyFinding struct {
	File string `json:"file"`
	Line int    `json:"line,omitempty"`
	// Result is error, or warning for a setting that is valid but risky.
	Result string `json:"result"`
	Field  string `json:"field,omitempty"`
	Text   string `json:"text"`
}

func (a policyVerbs) policyCheckCommand() *cobra.Command {
	layer := policy.LayerTask
	cmd := &cobra.Command{
		Use: "check FILE...", Short: "Check policy documents without applying them", Args: cobra.MinimumNArgs(1),
		Long: "Check policy documents with the parser that sandboxes use, combined with the policies\n" +
			"of the settings, and report mistakes and risky rules. - is standard input. The exit\n" +
			"code is 0 if nothing was found, 1 if something was found, 2 if a file cannot be read.",
		Annotations: map[string]string{"code": "check"},
		RunE: func(_ *cobra.Command, args []string) error {
			found := []policyFinding{}
			for _, file := range args {
				list, err := a.checkPolicy(file, layer)
				if err != nil {
					return err
				}
				found = append(found, list...)
			}
			return a.printPolicyFindings(args, found)
		},
	}
	cmd.Flags().StringVar(&layer, "layer", layer, "check the documents as this `layer`: organisation, project or task")
	offerValues(cmd, "layer", []cobra.Completion{policy.LayerOrganisation, policy.LayerProject, policy.LayerTask})
	return cmd
}

// readText reads a file, or standard input for "-".
func (a policyVerbs) readText(name string) ([]byte, error) {
	var text []byte
	var err error
	if name == "-" {
		text, err = io.ReadAll(io.LimitReader(a.Stdin, maxPolicy+1))
	} else {
		text, err = readFile(name, maxPolicy)
	}
	if err != nil {
		return nil, fail("read "+name, err)
	}
	return text, nil
}

// checkPolicy returns the findings about a policy document as the given layer.
func (a policyVerbs) checkPolicy(file, layer string) ([]policyFinding, error) {
	text, err := a.readText(file)
	if err != nil {
		return nil, err
	}
	settings, err := a.settings()
	if err != nil {
		return nil, err
	}
	var layers []policy.Layer
	switch layer {
	case policy.LayerOrganisation:
		settings.Organisation = nil
	case policy.LayerProject:
		settings.Project = nil
	case policy.LayerTask:
	default:
		return nil, usagef("--layer: %q is not organisation, project or task", layer)
	}
	if settings.Organisation != nil {
		layers = append(layers, policy.Layer{Kind: policy.LayerOrganisation, Document: *settings.Organisation})
	}
	if settings.Project != nil && layer == policy.LayerTask {
		layers = append(layers, policy.Layer{Kind: policy.LayerProject, Document: *settings.Project})
	}
	a.noteQuorum(text, layer, layers)
	var found []policyFinding
	for _, p := range policy.Check(text, layer, layers...) {
		result := "error"
		if p.Warning {
			result = "warning"
		}
		found = append(found, policyFinding{file, p.Line, result, p.Field, p.Text})
	}
	return found, nil
}

func (a policyVerbs) printPolicyFindings(files []string, found []policyFinding) error {
	if a.json {
		if err := a.object(found); err != nil {
			return err
		}
	} else {
		for _, file := range files {
			clean := true
			for _, f := range found {
				if f.File == file {
					clean = false
					fmt.Fprintf(a.Stdout, "%s: %s: %s%s\n", lineOf(f.File, f.Line), f.Result, lead(f.Field), oneLine(f.Text))
				}
			}
			if clean && !a.quiet {
				fmt.Fprintf(a.Stdout, "%s: ok\n", file)
			}
		}
	}
	if len(found) > 0 {
		return exitCode(codeFound)
	}
	return nil
}

// lead returns a field's name as a prefix of a message.
func lead(field string) string {
	if field == "" {
		return ""
	}
	return field + ": "
}

// lineOf returns a file and a line number in the format that editors understand.
func lineOf(file string, line int) string {
	if line == 0 {
		return file
	}
	return file + ":" + strconv.Itoa(line)
}

func (a policyVerbs) policyTestCommand() *cobra.Command {
	var cases string
	var f accessFlags
	cmd := &cobra.Command{
		Use: "test [FILE] --cases CASES", Short: "Test a policy against requests with expected decisions", Args: cobra.MaximumNArgs(1),
		Long: "Test a policy document: decide requests and compare the decisions with the expected\n" +
			"ones. The exit code is 0 if all are as expected, 1 if not, 2 if a file cannot be\n" +
			"read. A file of cases:\n\n" +
			"  cases:\n" +
			"    - {request: \"GET https://api.example.com/a\", expect: allow}\n" +
			"    - {connect: \"db.example.com:5432\", expect: deny, rule: network.unlisted}",
		Example:     "  crannog policy test policy.yaml --cases cases.yaml\n  crannog policy test --net dev --cases cases.yaml",
		Annotations: map[string]string{"code": "check"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if cases == "" {
				return usagef("policy test needs a file with cases: --cases CASES")
			}
			if len(args) == 1 {
				if f.policy != "" {
					return usagef("name the policy once: FILE or --policy")
				}
				f.policy = args[0]
			}
			if err := a.assumeNetwork(&f); err != nil {
				return err
			}
			p, err := a.policyFor(cmd.Context(), "", &f)
			if err != nil {
				return err
			}
			text, err := a.readText(cases)
			if err != nil {
				return err
			}
			results, err := policy.RunCases(p, text)
			if err != nil {
				return fail("use "+cases, err)
			}
			return a.printCases(cases, results)
		},
	}
	f.add(cmd.Flags())
	f.offer(cmd)
	cmd.Flags().StringVar(&cases, "cases", "", "`file` with requests and expected decisions")
	return cmd
}

func (a policyVerbs) printCases(file string, results []policy.Result) error {
	failed := 0
	for _, r := range results {
		if !r.OK {
			failed++
		}
		if a.json || r.OK && !a.verbose {
			continue
		}
		want, got := string(r.Expect), string(r.Got.Effect)+" by "+r.Got.Rule
		if r.Rule != "" {
			want += " by " + r.Rule
		}
		fmt.Fprintf(a.Stdout, "%s: %s is %s, expected %s\n", lineOf(file, r.Line), cmp.Or(r.Request, r.Connect), got, want)
	}
	if a.json {
		if err := a.object(results); err != nil {
			return err
		}
	} else if !a.quiet {
		fmt.Fprintf(a.Stdout, "%d of %d decisions are as expected\n", len(results)-failed, len(results))
	}
	if failed > 0 {
		return exitCode(codeFound)
	}
	return nil
}
