package lifecycle

// The order of locks, the first to take first:
//
//	the lock of a sandbox's ID > Service.mu > pool.mu > access.Service.mu
//
// A goroutine holds the lock of one ID at a time. Package access calls nothing of this
// package while it holds its own lock. The locks inside the store and the audit log are
// below all of these: neither calls back. Tests with the race detector panic where the
// order is broken.
type (
	rankID      struct{}
	rankService struct{}
	rankPool    struct{}
)

func (rankID) Rank() (int, string)      { return 1, "the lock of a sandbox's ID" }
func (rankService) Rank() (int, string) { return 2, "Service.mu" }
func (rankPool) Rank() (int, string)    { return 3, "pool.mu" }
