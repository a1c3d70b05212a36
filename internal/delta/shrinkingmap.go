package delta

// shrinkingMap is a map for rows that come and go: it gives its memory back.
//
// A Go map keeps the buckets of its largest size, and going over it costs that size, not the number
// of its rows. After a first start, which writes every row, each later change would iterate over
// the buckets of all rows. So a map that has become much emptier than its largest size is copied
// into a small one.
type shrinkingMap[K comparable, R any] struct {
	keyMap[K, R]
	peak int
}

// minShrink is the size below which a map is never worth copying.
const minShrink = 128

func (m *shrinkingMap[K, R]) set(k K, r R) {
	m.keyMap.set(k, r)
	m.peak = max(m.peak, m.len())
}

// remove deletes a row. It must not be called while going over rows.
func (m *shrinkingMap[K, R]) remove(k K) {
	m.keyMap.remove(k)
	if m.peak <= minShrink || m.len() > m.peak/8 {
		return
	}
	fresh := newKeyMap[K, R](m.KeyCodec)
	m.each(func(k K, r R) bool { fresh.set(k, r); return true })
	m.keyMap, m.peak = fresh, fresh.len()
}
