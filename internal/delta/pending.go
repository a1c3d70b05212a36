package delta

// pendingMap is a map for rows that come and go: it gives its memory back.
//
// A Go map keeps the buckets of its largest size, and going over it costs that size, not the number
// of its rows. After a first start, which writes every row, each later change would iterate over
// the buckets of all rows. So a map that has become much emptier than its largest size is copied
// into a small one.
type pendingMap[K comparable, R any] struct {
	shelf[K, R]
	peak int
}

// roomy is the size below which a map is never worth copying.
const roomy = 128

func (m *pendingMap[K, R]) set(k K, r R) {
	m.shelf.set(k, r)
	m.peak = max(m.peak, m.len())
}

// remove deletes a row. It must not be called while going over rows.
func (m *pendingMap[K, R]) remove(k K) {
	m.shelf.remove(k)
	if m.peak <= roomy || m.len() > m.peak/8 {
		return
	}
	fresh := newShelf[K, R](m.Packing)
	m.each(func(k K, r R) bool { fresh.set(k, r); return true })
	m.shelf, m.peak = fresh, fresh.len()
}
