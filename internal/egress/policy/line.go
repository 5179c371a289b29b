package policy

// Line is the line of a field in a document's text, by the name that
// warnings have for it; of what it should be in if it is not there, and zero
// if the text is no document.
func Line(text []byte, field string) int {
	var d Document
	root, err := decode(text, &d)
	if err != nil {
		return 0
	}
	c := &checker{lines: map[string]int{}}
	number(root, "", c.lines)
	return c.line(field)
}
