package pullthrough

import (
	"context"
	"fmt"
	"net/http"

	"github.com/crannog/crannog/internal/packages"
	"github.com/crannog/crannog/internal/packages/store"
)

// Roomy knows the free space of the disk on which fetched files are. A Storage can be one.
type Roomy interface {
	Room() (int64, error)
}

// roomShare is the divisor of the free space that limits one large file: while it is stored there
// are two of it, and something must be left.
const roomShare = 3

// limit returns how many bytes of a file with a stated size may be fetched. Beyond maxPlain, which
// only layers of images can exceed, the size must be stated and the disk must have room for it, and
// one such file is fetched at a time until release is called.
func (c *Cache) limit(ctx context.Context, e packages.Ecosystem, size int64) (n int64, release func(), err error) {
	roomy, ok := c.storage.(Roomy)
	if size <= c.maxPlain || store.MaxSize(e) <= store.MaxBlob || !ok {
		return c.maxPlain, func() {}, nil
	}
	select {
	case c.large <- struct{}{}:
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	}
	release = func() { <-c.large }
	room, err := roomy.Room()
	if err != nil {
		release()
		return 0, nil, err
	}
	return max(c.maxPlain, min(store.MaxSize(e), room/roomShare)), release, nil
}

// tooLarge returns the refusal of a file beyond a limit.
func (c *Cache) tooLarge(fact packages.Fact, limit int64) error {
	why := ""
	if limit != store.MaxSize(fact.Ecosystem) && store.MaxSize(fact.Ecosystem) > store.MaxBlob {
		why = ", because the disk of the state directory must have three times the size of a large layer free"
	}
	return refuse(http.StatusBadGateway, "package_too_large", packages.RuleRequest,
		fmt.Sprintf("the file is larger than the cache accepts, which is %.1f GiB%s; a policy without packages.cache for %s lets it pass", float64(limit)/(1<<30), why, fact.Ecosystem), fact, nil)
}
