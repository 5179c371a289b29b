package lifecycle

// The order of locks, the first to take first:
//
//	the lock of a sandbox's ID > Service.mu > warmpool.Pool.mu > access.Service.mu
//
// A goroutine holds the lock of one ID at a time. Packages warmpool and access call
// nothing of this package while they hold their own locks. The locks inside the store and
// the audit log are below all of these: neither calls back. Tests with the race detector
// panic where the order is broken.
type (
	rankID      struct{}
	rankService struct{}
)

func (rankID) Rank() (int, string)      { return 1, "the lock of a sandbox's ID" }
func (rankService) Rank() (int, string) { return 2, "Service.mu" }
