package objects

// Limits of a Reader's cache. Successive commits share most of their directories, and objects in a
// pack are deltas of others.
const (
	maxCacheBytes   = 64 << 20
	maxCachedObject = 4 << 20 // of one object
	maxCacheObjects = 200_000
)

// objectKey identifies an object: its name, or its offset in a pack.
type objectKey struct {
	id   string
	pack *pack
	at   int64
}

// object is an object that was read.
type object struct {
	kind string
	data []byte // read-only
}

// objectCache is a cache of recently read objects.
type objectCache struct {
	all   map[objectKey]object
	bytes int
}

func (m *objectCache) find(p objectKey) (object, bool) {
	o, ok := m.all[p]
	return o, ok
}

func (m *objectCache) add(p objectKey, o object) {
	if len(o.data) > maxCachedObject {
		return
	}
	if m.all == nil || m.bytes+len(o.data) > maxCacheBytes || len(m.all) >= maxCacheObjects {
		m.all, m.bytes = map[objectKey]object{}, 0
	}
	m.all[p] = o
	m.bytes += len(o.data)
}
