package objects

// Limits of a Reader's cache. Successive commits share most of their directories, and objects in a
// pack are deltas of others.
const (
	maxRemembered = 64 << 20
	maxRemember   = 4 << 20 // of one object
	maxPlaces     = 200_000
)

// objectKey identifies an object: its name, or its offset in a pack.
type objectKey struct {
	id   string
	pack *pack
	at   int64
}

type object struct {
	kind string
	data []byte // read-only
}

// remembered is a cache of recently read objects.
type remembered struct {
	all   map[objectKey]object
	bytes int
}

func (m *remembered) find(p objectKey) (object, bool) {
	o, ok := m.all[p]
	return o, ok
}

func (m *remembered) add(p objectKey, o object) {
	if len(o.data) > maxRemember {
		return
	}
	if m.all == nil || m.bytes+len(o.data) > maxRemembered || len(m.all) >= maxPlaces {
		m.all, m.bytes = map[objectKey]object{}, 0
	}
	m.all[p] = o
	m.bytes += len(o.data)
}
