package delta

// pendingMap is a map for rows that come and go: it gives its memory back.
//
// A Go map keeps the buckets of its largest size, and going over it costs that
// size, not the number of its rows. After a first start that writes everything
// each later change would pay for all rows, so a map that has become much
// emptier than it once was is copied into a small one.
type pendingMap[K comparable, R any] struct {
	rows map[K]R
	peak int
}

// roomy is the size below which a map is never worth copying.
const roomy = 128

func newPendingMap[K comparable, R any]() pendingMap[K, R] {
	return pendingMap[K, R]{rows: map[K]R{}}
}

func (m *pendingMap[K, R]) set(k K, r R) {
	m.rows[k] = r
	m.peak = max(m.peak, len(m.rows))
}

// remove deletes a row. It must not be called while going over rows.
func (m *pendingMap[K, R]) remove(k K) {
	delete(m.rows, k)
	if m.peak <= roomy || len(m.rows) > m.peak/8 {
		return
	}
	small := make(map[K]R, len(m.rows))
	for k, r := range m.rows {
		small[k] = r
	}
	m.rows, m.peak = small, len(small)
}
