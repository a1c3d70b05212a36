package delta

import (
	"iter"
	"maps"
	"slices"
)

// Claims settle who holds each key when several owners want it: the owner that comes first in the
// given order, whatever the order of asking. A key is held as long as an owner claims it.
type Claims[O, K comparable, V any] struct {
	compare func(a, b O) int

	byKey   map[K][]claim[O, V] // sorted by owner, never empty
	byOwner map[O][]K           // the keys of each owner, in no order
}

type claim[O comparable, V any] struct {
	value V // first, where an empty one takes no room
	owner O
}

// Holding is the new state of a key: its holder, and the value.
type Holding[O, K comparable, V any] struct {
	Key   K
	Held  bool // false: no owner claims the key any more
	Owner O
	Value V
}

// NewClaims returns empty Claims; compare is a strict total order of owners.
func NewClaims[O, K comparable, V any](compare func(a, b O) int) *Claims[O, K, V] {
	return &Claims[O, K, V]{
		compare: compare,
		byKey:   map[K][]claim[O, V]{},
		byOwner: map[O][]K{},
	}
}

// Set makes rows all that owner claims; none releases everything. It returns the new state of every
// key that the owner claimed before or claims now, the released ones first. The cost is that of
// these keys.
func (c *Claims[O, K, V]) Set(owner O, rows map[K]V) []Holding[O, K, V] {
	touched := make([]Holding[O, K, V], 0, len(rows))
	for _, k := range c.byOwner[owner] {
		if _, kept := rows[k]; !kept {
			c.release(owner, k)
			touched = append(touched, c.Holder(k))
		}
	}
	keys := make([]K, 0, len(rows))
	for k, v := range rows {
		c.claim(owner, k, v)
		keys = append(keys, k)
		touched = append(touched, c.Holder(k))
	}
	if len(keys) == 0 {
		delete(c.byOwner, owner)
	} else {
		c.byOwner[owner] = keys
	}
	return touched
}

// claim inserts or replaces one claim in the key's order.
func (c *Claims[O, K, V]) claim(owner O, k K, v V) {
	list := c.byKey[k]
	i, found := c.search(list, owner)
	if found {
		list[i].value = v
		return
	}
	c.byKey[k] = slices.Insert(list, i, claim[O, V]{owner: owner, value: v})
}

func (c *Claims[O, K, V]) release(owner O, k K) {
	list := c.byKey[k]
	i, found := c.search(list, owner)
	if !found {
		return
	}
	if len(list) == 1 {
		delete(c.byKey, k)
		return
	}
	c.byKey[k] = slices.Delete(list, i, i+1)
}

func (c *Claims[O, K, V]) search(list []claim[O, V], owner O) (int, bool) {
	return slices.BinarySearchFunc(list, owner, func(x claim[O, V], o O) int { return c.compare(x.owner, o) })
}

// Holder tells who holds a key.
func (c *Claims[O, K, V]) Holder(k K) Holding[O, K, V] {
	list := c.byKey[k]
	if len(list) == 0 {
		return Holding[O, K, V]{Key: k}
	}
	return Holding[O, K, V]{Key: k, Held: true, Owner: list[0].owner, Value: list[0].value}
}

// Claimants lists everybody who wants a key, the holder first.
func (c *Claims[O, K, V]) Claimants(k K) []O {
	var owners []O
	for _, cl := range c.byKey[k] {
		owners = append(owners, cl.owner)
	}
	return owners
}

// Keys goes over the held keys, in no order.
func (c *Claims[O, K, V]) Keys() iter.Seq[K] { return maps.Keys(c.byKey) }

// Len is the number of held keys.
func (c *Claims[O, K, V]) Len() int { return len(c.byKey) }
