package policy

import _ "embed" // the schema

// schema is made from document.go by this package's tests with -update.
//
//go:embed schema.json
var schema []byte

//go:generate go test . -run ^TestSchema$ -update

// Schema describes documents as a JSON Schema, for editors. It knows fields
// and their kinds; what Check says counts.
func Schema() []byte { return schema }
