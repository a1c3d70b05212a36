package nft

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nfnetlink"
)

// Messages and attributes of nf_tables (include/uapi/linux/netfilter/nf_tables.h).
const (
	newTable   = nfnetlink.NFTables << 8
	getTable   = nfnetlink.NFTables<<8 | 1
	delTable   = nfnetlink.NFTables<<8 | 2
	newChain   = nfnetlink.NFTables<<8 | 3
	getChain   = nfnetlink.NFTables<<8 | 4
	delChain   = nfnetlink.NFTables<<8 | 5
	newRule    = nfnetlink.NFTables<<8 | 6
	getRule    = nfnetlink.NFTables<<8 | 7
	delRule    = nfnetlink.NFTables<<8 | 8
	newSet     = nfnetlink.NFTables<<8 | 9
	getSet     = nfnetlink.NFTables<<8 | 10
	delSet     = nfnetlink.NFTables<<8 | 11
	newSetElem = nfnetlink.NFTables<<8 | 12
	getSetElem = nfnetlink.NFTables<<8 | 13
	delSetElem = nfnetlink.NFTables<<8 | 14
	newGen     = nfnetlink.NFTables<<8 | 15
	getGen     = nfnetlink.NFTables<<8 | 16

	genID = 1

	tableName     = 1
	tableFlags    = 2
	tableUserdata = 6

	chainTable   = 1
	chainName    = 3
	chainHook    = 4
	chainPolicy  = 5
	chainType    = 7
	hookNumber   = 1
	hookPriority = 2
	hookDevice   = 3
	policyAccept = 1

	ruleTable    = 1
	ruleChain    = 2
	ruleExprs    = 4
	ruleUserdata = 7

	setTable    = 1
	setName     = 2
	setFlags    = 3
	setKeyType  = 4
	setKeyLen   = 5
	setDataType = 6
	setDataLen  = 7
	setDesc     = 9
	setID       = 10
	setTimeout  = 11
	descConcat  = 2
	fieldLen    = 1

	flagConstant = 0x2
	flagInterval = 0x4
	flagMap      = 0x8
	flagTimeout  = 0x10
	flagConcat   = 0x80

	elemsTable = 1
	elemsSet   = 2
	elemsList  = 3
)

// Types of fields, in the numbers of nft(8), of which six bits each make the type of a key
// (include/datatype.h of nftables).
const (
	typeIPv4    = 7
	typeIPv6    = 8
	typeProto   = 12
	typeService = 13
	typeBits    = 6
	typeVerdict = 0xffffff00 // NFT_DATA_VERDICT
)

// Userdata that this package attaches is a list of types, lengths and values, as that of nft(8),
// which skips the types that it does not know.
const (
	userComment = 0    // NFTNL_UDATA_RULE_COMMENT, NFTNL_UDATA_TABLE_COMMENT
	userOurs    = 0xc0 // the version of a table, the tag of a rule
)

func appendUser(b []byte, kind byte, v []byte) []byte {
	return append(append(b, kind, byte(len(v))), v...)
}

// parseUser returns the value of a type, nil where there is none.
func parseUser(b []byte, kind byte) []byte {
	for len(b) >= 2 && len(b) >= 2+int(b[1]) {
		if b[0] == kind {
			return b[2 : 2+int(b[1])]
		}
		b = b[2+int(b[1]):]
	}
	return nil
}

// tableTag is the userdata of a table of ours.
func tableTag() []byte {
	return appendUser(nil, userOurs, binary.BigEndian.AppendUint32(nil, Version))
}

// tag is the userdata of a rule: its comment, and a digest of its text. A rule that another program
// added or replaced has no digest, or not its own.
func (r Rule) tag(f Family) (b []byte) {
	if r.Comment != "" {
		b = appendUser(b, userComment, append([]byte(r.Comment), 0))
	}
	return appendUser(b, userOurs, r.digest(f))
}

func (r Rule) digest(f Family) []byte {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d\n%s", Version, r.Text(f))
	return h.Sum(nil)
}

// writer builds the messages of a transaction and numbers them.
type writer struct {
	nfnetlink.Builder
	seq uint32
}

func (w *writer) begin(kind, flags uint16, f Family) {
	w.seq++
	w.Begin(kind, flags, w.seq, uint8(f), 0)
}

// named begins a message about something in one of our tables. The name of the table is the first
// attribute of all of them.
func (w *writer) named(kind, flags uint16, k Key, attr uint16) {
	w.begin(kind, flags, k.Family)
	w.Text(tableName, TableName)
	w.Text(attr, k.Name)
}

func (w *writer) limit(kind uint16) {
	w.seq++
	w.Begin(kind, 0, w.seq, 0, nfnetlink.NFTables)
	w.End()
}

func (w *writer) createTable(f Family) {
	w.begin(newTable, nfnetlink.Create, f)
	w.Text(tableName, TableName)
	w.Bytes(tableUserdata, tableTag())
	w.End()
}

func (w *writer) deleteTable(f Family) {
	w.begin(delTable, 0, f)
	w.Text(tableName, TableName)
	w.End()
}

func (w *writer) createChain(k Key, b Base) {
	w.named(newChain, nfnetlink.Create, k, chainName)
	if b != (Base{}) {
		hook := w.Nest(chainHook)
		w.Number(hookNumber, hooks[b.Hook])
		w.Number(hookPriority, uint32(b.Priority))
		w.Unnest(hook)
		w.Number(chainPolicy, policyAccept)
		w.Text(chainType, b.Type)
	}
	w.End()
}

// flushChain deletes all rules of a chain.
func (w *writer) flushChain(k Key) {
	w.named(delRule, 0, k, ruleChain)
	w.End()
}

func (w *writer) deleteChain(k Key) {
	w.named(delChain, 0, k, chainName)
	w.End()
}

func (w *writer) appendRule(k Key, r Rule) {
	w.named(newRule, nfnetlink.Create|nfnetlink.Append, k, ruleChain)
	list := w.Nest(ruleExprs)
	for _, e := range r.lower(k.Family) {
		e.append(&w.Builder)
	}
	w.Unnest(list)
	w.Bytes(ruleUserdata, r.tag(k.Family))
	w.End()
}

func (w *writer) createSet(k Key, s Set) {
	w.named(newSet, nfnetlink.Create, k, setName)
	for _, a := range s.header(k.Family) {
		w.Number(a.kind, a.n)
	}
	if s.Timeout > 0 {
		w.Long(setTimeout, uint64(s.Timeout.Milliseconds()))
	}
	if parts := shapes[s.Shape]; s.Shape.Ranges() && len(parts) > 1 {
		desc := w.Nest(setDesc)
		concat := w.Nest(descConcat)
		for _, p := range parts {
			field := w.Nest(listElem)
			w.Number(fieldLen, p.fieldLen(k.Family))
			w.Unnest(field)
		}
		w.Unnest(concat)
		w.Unnest(desc)
	}
	w.Number(setID, w.seq)
	w.End()
}

// fieldLen is the length that a field has by itself.
func (p part) fieldLen(f Family) uint32 {
	switch p {
	case partProtocol:
		return 1
	case partPort:
		return 2
	}
	return uint32(f.addrLen())
}

// property is a number in the header of a set.
type property struct {
	kind uint16
	n    uint32
}

// header returns the numbers that make a set what it is.
func (s Set) header(f Family) []property {
	flags := uint32(0)
	if s.Shape.Ranges() {
		flags |= flagInterval
		if len(shapes[s.Shape]) > 1 {
			flags |= flagConcat
		}
	}
	if s.Data != NoData {
		flags |= flagMap
	}
	if s.Timeout > 0 {
		flags |= flagTimeout
	}
	out := []property{{setFlags, flags}, {setKeyType, typeOf(f, shapes[s.Shape])}, {setKeyLen, uint32(keyLen(f, s))}}
	switch s.Data {
	case Verdicts:
		out = append(out, property{setDataType, typeVerdict})
	case Destinations:
		out = append(out, property{setDataType, typeOf(f, destination)}, property{setDataLen, uint32(f.addrLen() + 4)})
	}
	return out
}

func typeOf(f Family, parts []part) (n uint32) {
	addr := map[Family]uint32{IPv4: typeIPv4, IPv6: typeIPv6}[f]
	types := map[part]uint32{partAddr: addr, partNet: addr, partProtocol: typeProto, partPort: typeService}
	for _, p := range parts {
		n = n<<typeBits | types[p]
	}
	return n
}

func (w *writer) deleteSet(k Key) {
	w.named(delSet, 0, k, setName)
	w.End()
}

// flushSet deletes all elements of a set.
func (w *writer) flushSet(k Key) {
	w.named(delSetElem, 0, k, elemsSet)
	w.End()
}

// elements adds or deletes elements of one set, and returns where each of them begins, in bytes from
// the start of the message.
func (w *writer) elements(k Key, s Set, remove bool, list []Element) (starts []int) {
	kind, flags := uint16(newSetElem), uint16(nfnetlink.Create)
	if remove {
		kind, flags = delSetElem, 0
	}
	from := len(w.B)
	w.named(kind, flags, k, elemsSet)
	nest := w.Nest(elemsList)
	for _, e := range list {
		starts = append(starts, len(w.B)-from)
		e.append(&w.Builder, s, remove)
	}
	w.Unnest(nest)
	w.End()
	return starts
}

// parseVersion returns the version of a table, 0 where it has none, and where the table has flags:
// one that is dormant does nothing.
func parseVersion(a nfnetlink.Attrs) uint32 {
	v := parseUser(a.Bytes(tableUserdata), userOurs)
	if len(v) != 4 || a.Number(tableFlags) != 0 {
		return 0
	}
	return binary.BigEndian.Uint32(v)
}

func parseBase(a nfnetlink.Attrs) Base {
	hook, ok := a.Get(chainHook)
	if !ok {
		return Base{}
	}
	b := Base{a.Text(chainType), hookName(hook.Number(hookNumber)), int32(hook.Number(hookPriority))}
	if a.Number(chainPolicy) != policyAccept || hook.Has(hookDevice) {
		b.Type += " with another policy" // no base chain of ours
	}
	return b
}

func parseRule(f Family, a nfnetlink.Attrs) Rule {
	var exprs []expr
	var packets uint64
	if list, ok := a.Get(ruleExprs); ok {
		exprs = parseExprs(list)
		packets = parsePackets(list)
	}
	user := a.Bytes(ruleUserdata)
	r := Rule{Packets: packets, Statements: raise(f, exprs), Comment: strings.TrimSuffix(string(parseUser(user, userComment)), "\x00")}
	r.Foreign = !slices.Equal(parseUser(user, userOurs), r.digest(f))
	return r
}

// parseSet returns the header of a set; properties that this package would not write are named in Other.
func parseSet(f Family, a nfnetlink.Attrs) Set {
	s := Set{Timeout: time.Duration(a.Long(setTimeout)) * time.Millisecond}
	switch a.Number(setDataType) {
	case 0:
	case typeVerdict:
		s.Data = Verdicts
	default:
		s.Data = Destinations
	}
	flags := a.Number(setFlags)
	for shape := Addr; shape <= ProtocolPort; shape++ {
		s.Shape = shape
		if typeOf(f, shapes[shape]) == a.Number(setKeyType) && shape.Ranges() == (flags&flagInterval != 0) {
			break
		}
	}
	for _, p := range s.header(f) {
		if got := a.Number(p.kind); got != p.n {
			s.Other += fmt.Sprintf(" property %d: %#x", p.kind, got)
		}
	}
	s.Other = strings.TrimPrefix(s.Other, " ")
	return s
}
