package packages

// ScanRule is the setting of a policy that requires a scan of each file. With a nil ScanRule,
// nothing is scanned.
type ScanRule struct{ Layer string }

// RuleScan is the rule of refusals because of a scan.
const RuleScan = "packages.scan"
