package engine

import "github.com/crannog/crannog/internal/fault"

// Result is the outcome of a check of the host.
type Result string

const (
	ResultOK   Result = "ok"
	ResultWarn Result = "warn" // sandboxes can run, but a protection or feature is weaker or missing
	ResultFail Result = "fail" // no sandbox of this engine can run here
)

// Finding is the result of one check of the host.
type Finding struct {
	Check  string // what is checked, in one or two words
	Result Result
	Detail string // what was found
	Fix    string // what to do about it, or ""
	// Code is the code of Create's fault if this check has failed, or "" for the default code.
	Code string
}

// OK returns the finding of a check that passed.
func OK(check, detail string) Finding { return Finding{Check: check, Result: ResultOK, Detail: detail} }

// Warn returns the finding that a protection or feature is weaker or missing.
func Warn(check, detail, fix string) Finding {
	return Finding{Check: check, Result: ResultWarn, Detail: detail, Fix: fix}
}

// Fail returns the finding that no sandbox can run here.
func Fail(check, detail, fix string) Finding {
	return Finding{Check: check, Result: ResultFail, Detail: detail, Fix: fix}
}

// Refusal returns the first failed finding as a fault of kind Unsupported, or nil if the engine can
// run here.
func Refusal(findings []Finding) error {
	for _, f := range findings {
		if f.Result != ResultFail {
			continue
		}
		code := f.Code
		if code == "" {
			code = "host_unsupported"
		}
		return fault.New(fault.Unsupported, code, f.Check+": "+f.Detail).WithHint(f.Fix)
	}
	return nil
}
