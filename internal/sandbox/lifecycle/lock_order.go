package lifecycle

// The order of locks, the first to take first:
//
//	the lock of a sandbox's ID > operations.mu > liveSandboxes.mu > deadlines.mu >
//	background.mu > warmpool.Pool.mu > access.Service.mu
//
// A goroutine holds the lock of one ID at a time. Packages warmpool and access call
// nothing of this package while they hold their own locks. The locks inside the store and
// the audit log are below all of these: neither calls back. Tests with the race detector
// panic where the order is broken.
type (
	rankID         struct{}
	rankOperations struct{}
	rankLive       struct{}
	rankDeadlines  struct{}
	rankBackground struct{}
)

func (rankID) Rank() (int, string)         { return 1, "the lock of a sandbox's ID" }
func (rankOperations) Rank() (int, string) { return 2, "operations.mu" }
func (rankLive) Rank() (int, string)       { return 3, "liveSandboxes.mu" }
func (rankDeadlines) Rank() (int, string)  { return 4, "deadlines.mu" }
func (rankBackground) Rank() (int, string) { return 5, "background.mu" }
