package enginebench

import "errors"

var (
	// ErrOptions is returned for options that are not valid.
	ErrOptions = errors.New("the options of the benchmark are not valid")
	// ErrNoEngine is returned if no engine can be measured. The report has the reason of each.
	ErrNoEngine = errors.New("no engine can be measured on this host")
)

// errAbsent is returned by a measurement that does not apply, such as one of a program that is not
// installed inside. Its text is the reason that the report shows.
type errAbsent string

func (e errAbsent) Error() string { return string(e) }
