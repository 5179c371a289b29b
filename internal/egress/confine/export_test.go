package confine

import "runtime"

// InheritedWithout removes the rights of one thread but skips one step. It returns the error that
// the restarted program would report.
func InheritedWithout(r Rules, name string) error {
	runtime.LockOSThread()
	b := &Process{rules: r}
	var report Report
	for _, s := range b.steps() {
		if s.name == name {
			b.secured, b.bounded = true, true // no error for the missing step
			continue
		}
		if err := s.do(&report); err != nil {
			return err
		}
	}
	filesUser(uint32(r.UID)) // as the kernel does
	return b.checkInherited(&report)
}
