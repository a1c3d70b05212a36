package conntrack

import (
	"encoding/binary"
)

// wanted are the orders of one family, by key, and the addresses that are fresh in any of them. The order
// for one key that comes last in a list counts.
type wanted struct {
	family uint8
	orders map[Key]Order
	fresh  map[Key]struct{}
}

func newWanted(family uint8, list []Order) wanted {
	w := wanted{family: family, orders: map[Key]Order{}, fresh: map[Key]struct{}{}}
	for _, o := range list {
		if o.Key.Addr.IsValid() && uint8(o.Key.Family()) == family {
			w.orders[o.Key] = o
			for _, k := range o.fresh() {
				w.fresh[k] = struct{}{}
			}
		}
	}
	return w
}

// query selects the flows of a dump: those that are equal to the key, or whose sender is, in some
// fields.
type query struct {
	Key
	match uint32 // of filterOriginal; fields that are not compared are zero in the key
	few   bool   // of all flows of a protocol there were few when they were read last
}

// everything is a dump without a filter.
var everything = query{}

// whole reports whether the query may return many more flows than are wanted.
func (q query) whole() bool { return q.match&(matchDestinationPort|matchSourcePort) == 0 && !q.few }

// bySender reports whether the query matches the sender of the flow.
func (q query) bySender() bool { return q.match&matchSourcePort != 0 }

// fewFlows is how many flows of a protocol cost next to nothing to read.
const fewFlows = 20_000

// queries are the dumps that together return every wanted flow, one for each port of a key or of a
// fresh address. Every dump makes the kernel search its whole table, and a returned flow costs four
// times as much as a skipped one. So keys with the same port share a dump. For more than limit
// ports one dump reads all flows of their protocol; so does a protocol that returned few flows at
// its last query. (100,000 flows take 35 ms in a filtered dump and 157 ms in a full one; a million
// take 270 ms and 1.4 s. The CPU handles no packets until a datagram is full.)
//
// A query names an address only if no other key has that port, and never an IPv6 address. The
// kernel compares those inversely and skips just the requested flows (ctnetlink_filter_match_tuple
// since Linux 5.8, still in 6.18).
func (w wanted) queries(limit int, few func(query) bool) []query {
	ports, protocols := map[query]int{}, map[query]bool{}
	all := everything
	for k := range w.orders {
		all = query{Key: Key{Protocol: k.Protocol}, match: matchProtocol}
		ports[portOf(k)]++
		protocols[all] = true
	}
	for k := range w.fresh {
		ports[portFrom(k)]++
	}
	mixed := len(protocols) > 1
	switch {
	case len(ports) > limit && mixed:
		return []query{everything}
	case len(ports) > limit:
		return []query{all}
	case len(ports) > 1 && !mixed && few(all):
		all.few = true
		return []query{all}
	}
	return w.byPort(ports)
}

// byPort asks for each port; ports are those of the keys, and how many keys have it.
func (w wanted) byPort(ports map[query]int) (list []query) {
	ask := func(k Key, q query, address uint32) {
		switch n := ports[q]; {
		case n == 1 && w.family == 4:
			list = append(list, query{Key: k, match: q.match | address})
		case n > 0:
			list = append(list, q)
			ports[q] = 0 // the others with this port are answered too
		}
	}
	for k := range w.orders {
		ask(k, portOf(k), matchDestination)
	}
	for k := range w.fresh {
		ask(k, portFrom(k), matchSource)
	}
	return list
}

func portOf(k Key) query {
	return query{Key: Key{Port: k.Port, Protocol: k.Protocol}, match: matchProtocol | matchDestinationPort}
}

// portFrom is portOf of a sender.
func portFrom(k Key) query {
	return query{Key: Key{Port: k.Port, Protocol: k.Protocol}, match: matchProtocol | matchSourcePort}
}

// answeredBy reports whether a kernel that filters may return a flow for the query. It compares
// ports for two protocols only.
func (q query) answeredBy(t tuple) bool {
	k := t.key()
	if q.bySender() {
		k = t.sender()
	}
	ports := k.Protocol == ProtocolTCP || k.Protocol == ProtocolUDP
	return (q.match&matchProtocol == 0 || k.Protocol == q.Protocol) &&
		(q.match&(matchDestination|matchSource) == 0 || k.Addr == q.Addr) &&
		(q.match&(matchDestinationPort|matchSourcePort) == 0 || !ports || k.Port == q.Port)
}

// appendDump appends the request for the flows of a family that a query is for.
// Kernels before 5.8 read neither the tuple nor what of it is to be compared.
func (q query) appendDump(b []byte, seq uint32, family uint8) []byte {
	mark := len(b)
	b = appendHeader(b, getFlows, flagDump, seq, nfFamily(family))
	if q.match != 0 {
		address, port := uint16(ipv4Destination), uint16(protoDestinationPort)
		if q.bySender() {
			address, port = ipv4Source, protoSourcePort
		}
		proto := attr(tupleProto|nested, attr(protoNumber, []byte{uint8(q.Protocol)}), attr(port, binary.BigEndian.AppendUint16(nil, q.Port)))
		var ip []byte
		if q.match&(matchDestination|matchSource) != 0 {
			ip = attr(tupleIP|nested, attr(address, q.Addr.AsSlice()))
		}
		b = appendAttr(b, attrOriginal|nested, ip, proto)
		b = appendAttr(b, attrFilter|nested,
			attr(filterOriginal, native.AppendUint32(nil, q.match)),
			attr(filterReply, native.AppendUint32(nil, 0)))
	}
	sealMessage(b, mark)
	return b
}
