package manual

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// roff returns the man page of a command.
func roff(cmd *cobra.Command, version string) string {
	var b strings.Builder
	name := pageName(cmd)
	fmt.Fprintf(&b, ".TH \"%s\" \"%d\" \"\" \"crannog %s\" \"Crannog manual\"\n", escape(strings.ToUpper(name)), section(cmd), escape(version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", escape(name), escape(cmd.Short))
	if !isTopic(cmd) {
		fmt.Fprintf(&b, ".SH SYNOPSIS\n%s\n", line(escape(cmd.UseLine())))
	}
	b.WriteString(".SH DESCRIPTION\n")
	paragraphs(&b, text(cmd))
	if cmd.Example != "" {
		b.WriteString(".SH EXAMPLES\n")
		verbatim(&b, strings.Split(strings.Trim(cmd.Example, "\n"), "\n"))
	}
	options(&b, "OPTIONS", cmd.NonInheritedFlags())
	options(&b, "OPTIONS OF EVERY COMMAND", cmd.InheritedFlags())
	seeAlso(&b, cmd)
	return b.String()
}

// paragraphs writes a text. Indented lines are examples and tables, and keep their form; the others
// are filled.
func paragraphs(b *strings.Builder, text string) {
	var indented []string
	flush := func() {
		if len(indented) > 0 {
			verbatim(b, indented)
			b.WriteString(".PP\n")
			indented = nil
		}
	}
	for l := range strings.SplitSeq(text, "\n") {
		switch {
		case strings.HasPrefix(l, " "):
			indented = append(indented, l)
		case l == "":
			flush()
			if !strings.HasSuffix(b.String(), ".PP\n") && !strings.HasSuffix(b.String(), "DESCRIPTION\n") {
				b.WriteString(".PP\n")
			}
		default:
			flush()
			b.WriteString(line(escape(l)) + "\n")
		}
	}
	if len(indented) > 0 {
		verbatim(b, indented)
	}
}

// verbatim writes lines as they are.
func verbatim(b *strings.Builder, lines []string) {
	b.WriteString(".PP\n.nf\n")
	for _, l := range lines {
		b.WriteString(line(escape(l)) + "\n")
	}
	b.WriteString(".fi\n")
}

// options writes the flags that help shows, if there are any.
func options(b *strings.Builder, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(b, ".SH %s\n", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		b.WriteString(".TP\n")
		if f.Shorthand != "" {
			fmt.Fprintf(b, "\\fB\\-%s\\fR, ", f.Shorthand)
		}
		fmt.Fprintf(b, "\\fB\\-\\-%s\\fR", escape(f.Name))
		if value != "" {
			fmt.Fprintf(b, " \\fI%s\\fR", escape(value))
		}
		fmt.Fprintf(b, "\n%s\n", line(escape(usage+defaultOf(f))))
	})
}

// defaultOf returns the note about a flag's default, if it has one.
func defaultOf(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "0", "false", "[]", "0s":
		return ""
	}
	return " (default " + f.DefValue + ")"
}

// seeAlso names the pages of the parent command and of the subcommands.
func seeAlso(b *strings.Builder, cmd *cobra.Command) {
	var pages []string
	if cmd.HasParent() {
		pages = append(pages, reference(cmd.Parent()))
	}
	for _, sub := range children(cmd) {
		pages = append(pages, reference(sub))
	}
	if len(pages) > 0 {
		fmt.Fprintf(b, ".SH SEE ALSO\n%s\n", strings.Join(pages, ",\n"))
	}
}

// reference returns the name of a command's page, in bold and with its section.
func reference(cmd *cobra.Command) string {
	return fmt.Sprintf("\\fB%s\\fR(%d)", escape(pageName(cmd)), section(cmd))
}

// escape returns text that roff prints literally.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, `"`, `\(dq`, "^", `\(ha`, "~", `\(ti`).Replace(text)
}

// line returns escaped text for a line of its own: a leading period would start a roff request.
func line(escaped string) string {
	if strings.HasPrefix(escaped, ".") {
		return `\&` + escaped
	}
	return escaped
}
