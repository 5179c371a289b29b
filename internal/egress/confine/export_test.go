package confine

import "runtime"

// InheritedWithout removes every right of one thread except that of one step, and returns what the
// restarted program would report.
func InheritedWithout(r Rules, name string) error {
	runtime.LockOSThread()
	b := &Begun{rules: r}
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
