package delta

// KeyCodec puts keys into a small form for the time that they are kept. Keys are most of what a
// table holds, and packed keys contain no pointers that the garbage collector must follow. The zero
// KeyCodec keeps all keys as they are.
type KeyCodec[K comparable] struct {
	// Pack returns the small form; false where a key has none. Then it is kept as it is.
	Pack func(K) (PackedKey, bool)
	// Unpack gives back exactly the key that was packed.
	Unpack func(PackedKey) K
}

// PackedKey is the small form of a key: two endpoints of IPv4 and a little more fit in.
type PackedKey [16]byte

// keyMap is a map by the keys of rows, of which it packs those that have a small form.
type keyMap[K comparable, R any] struct {
	KeyCodec[K]
	small map[PackedKey]R
	rows  map[K]R // the others
}

func newKeyMap[K comparable, R any](p KeyCodec[K]) keyMap[K, R] {
	s := keyMap[K, R]{KeyCodec: p, rows: map[K]R{}}
	if p.Pack != nil {
		s.small = map[PackedKey]R{}
	}
	return s
}

func (s *keyMap[K, R]) get(k K) (R, bool) {
	if s.small != nil {
		if p, ok := s.Pack(k); ok {
			r, ok := s.small[p]
			return r, ok
		}
	}
	r, ok := s.rows[k]
	return r, ok
}

func (s *keyMap[K, R]) set(k K, r R) {
	if s.small != nil {
		if p, ok := s.Pack(k); ok {
			s.small[p] = r
			return
		}
	}
	s.rows[k] = r
}

func (s *keyMap[K, R]) remove(k K) {
	if s.small != nil {
		if p, ok := s.Pack(k); ok {
			delete(s.small, p)
			return
		}
	}
	delete(s.rows, k)
}

func (s *keyMap[K, R]) len() int { return len(s.small) + len(s.rows) }

// each visits the rows, in no order, until f returns false, and reports whether f never did. A row
// that was looked at may be set meanwhile.
func (s *keyMap[K, R]) each(f func(K, R) bool) bool {
	if len(s.small) > 0 { // most have rows of one kind, and going over none costs, too
		for p, r := range s.small {
			if !f(s.Unpack(p), r) {
				return false
			}
		}
	}
	if len(s.rows) > 0 {
		for k, r := range s.rows {
			if !f(k, r) {
				return false
			}
		}
	}
	return true
}
