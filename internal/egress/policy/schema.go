package policy

import _ "embed" // the schema

// schema is generated from document.go by this package's tests with -update.
//
//go:embed schema.json
var schema []byte

//go:generate go test . -run ^TestSchemaIsUpToDate$ -update

// Schema returns a JSON Schema of documents, for editors. It has only the fields and their types;
// Check is authoritative.
func Schema() []byte { return schema }
