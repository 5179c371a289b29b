package sandbox

// KeyFile is a file of a workspace, visible inside, whose content looks like a key.
type KeyFile struct {
	Name  string   `json:"name"`  // below the workspace
	Kinds []string `json:"kinds"` // such as github-token
}

// Keys is the result of searching a workspace for keys, with the first few files if there are many.
type Keys struct {
	Count  int       `json:"count,omitempty"`
	Files  []KeyFile `json:"files,omitempty"`
	Looked int       `json:"looked,omitempty"` // files whose contents were searched
	Left   int       `json:"left,omitempty"`   // files that were not
}
