package sandbox

// KeyFile is a file of a workspace, shown inside, whose contents look like keys.
type KeyFile struct {
	Name  string   `json:"name"`  // below the workspace
	Kinds []string `json:"kinds"` // such as github-token
}

// Keys is what a look at a workspace's contents found, of many files the first few.
type Keys struct {
	Count  int       `json:"count,omitempty"`
	Files  []KeyFile `json:"files,omitempty"`
	Looked int       `json:"looked,omitempty"` // files whose contents were looked at
	Left   int       `json:"left,omitempty"`   // files that were not
}
