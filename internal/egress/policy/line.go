package policy

// Line returns the line of a field in a document's text, where field is the name in a warning. If
// the field is missing, it returns the line of its parent, or zero if the text is not a document.
func Line(text []byte, field string) int {
	var d Document
	root, err := decode(text, &d)
	if err != nil {
		return 0
	}
	c := &checker{lines: map[string]int{}}
	recordLines(root, "", c.lines)
	return c.line(field)
}
