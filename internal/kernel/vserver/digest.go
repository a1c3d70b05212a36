package vserver

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/bits"
)

// Digest is what the kernel's list shows of one virtual server and all its destinations, in a few
// words that are compared with ==. Two that differ are of two different servers. Two that are equal
// may still differ in fields that the list lacks: the scheduler's flags, one-packet scheduling of
// IPv6, the persistence engine and the thresholds of destinations. By chance they are equal once in
// 2^64 times.
type Digest struct {
	server       Server
	destinations int
	sum          uint64
}

// DigestOf is a server without destinations.
func DigestOf(k ServerKey, s Server) Digest {
	shown := FlagPersistent
	if k.Addr.Is4() { // ip_vs_info_seq_show prints "ops" for that family only
		shown |= FlagOnePacket
	}
	s.Flags &= shown
	s.Engine = ""
	if s.Flags&FlagPersistent == 0 {
		s.Timeout, s.HostBits = 0, 0
	}
	return Digest{server: s}
}

// Add brings in one destination; the order in which they come does not matter.
func (s *Digest) Add(k DestinationKey, d Destination) {
	var row [21]byte
	addr := k.Addr.As16()
	copy(row[:], addr[:])
	binary.NativeEndian.PutUint16(row[16:], k.Port)
	binary.NativeEndian.PutUint16(row[18:], d.Weight)
	if d.Forward <= ForwardRoute { // the list calls all others "Masq", too
		row[20] = d.Forward
	}
	s.destinations++
	s.sum += maphash.Bytes(digestSeed, row[:])
}

// digestSeed differs for each process, so that a tenant cannot choose rows whose sums are equal.
var digestSeed = maphash.MakeSeed()

// digester builds the digests of the servers in the list.
type digester struct {
	visit func(ServerKey, Digest)
	// ask reads one server exactly; false if it is not there.
	ask func(ServerKey) (Server, bool, error)
	// key and drawn are the server whose destinations come now, if open.
	key   ServerKey
	drawn Digest
	open  bool
	// names are those of schedulers met, so that each is made once.
	names map[string]string
	// hz is the number of the kernel's ticks in a second; 0 until it is known.
	hz uint32
}

func (s *digester) server(line serverLine) error {
	s.close()
	if !line.mine {
		return nil
	}
	shown := Server{Scheduler: s.name(line.scheduler)}
	if err := s.readFlags(line, &shown); err != nil {
		return err
	}
	s.key, s.drawn, s.open = line.key, DigestOf(line.key, shown), true
	return nil
}

// close hands over the server that no more destinations come of.
func (s *digester) close() {
	if s.open {
		s.open = false
		s.visit(s.key, s.drawn)
	}
}

func (s *digester) destination(line destinationLine) error {
	forward, ok := listedForward(line.forward)
	if !ok {
		return errMalformed
	}
	if s.open {
		s.drawn.Add(DestinationKey{Addr: line.addr, Port: line.port},
			Destination{Weight: uint16(min(line.weight, math.MaxUint16)), Forward: forward})
	}
	return nil
}

func (s *digester) name(b []byte) string {
	name, ok := s.names[string(b)]
	if !ok {
		if s.names == nil {
			s.names = make(map[string]string)
		}
		name = string(b)
		s.names[name] = name
	}
	return name
}

// readFlags reads what follows the scheduler: "ops" and "persistent 2700000 FFFFFF00".
func (s *digester) readFlags(line serverLine, to *Server) error {
	word, rest := cutField(line.flags)
	if string(word) == "ops" {
		to.Flags |= FlagOnePacket
		word, rest = cutField(rest)
	}
	if len(word) == 0 {
		return nil
	}
	ticks, rest := cutField(rest)
	mask, rest := cutField(rest)
	jiffies, okTicks := listedCount(ticks)
	netmask, okMask := hexNumber(mask)
	if string(word) != "persistent" || !okTicks || !okMask || len(mask) != 8 || len(trimBlanks(rest)) > 0 {
		return errMalformed
	}
	to.Flags |= FlagPersistent
	to.HostBits = listedHostBits(line.key, netmask)
	var err error
	to.Timeout, err = s.seconds(line.key, jiffies)
	return err
}

// seconds turns the list's timeout into the one that is set. The list prints svc->timeout in ticks
// of the kernel. The number of ticks in a second is a build option that user space cannot read, so
// one server is read both ways. A timeout that is no whole number of seconds cannot have been set:
// it reads as 0, as it does if that server was just deleted or changed.
func (s *digester) seconds(k ServerKey, jiffies uint32) (uint32, error) {
	if s.hz == 0 && jiffies > 0 {
		exact, there, err := s.ask(k)
		if err != nil {
			return 0, err
		}
		if there && exact.Timeout > 0 && jiffies%exact.Timeout == 0 {
			s.hz = jiffies / exact.Timeout
		}
	}
	if s.hz == 0 || jiffies%s.hz != 0 {
		return 0, nil
	}
	return jiffies / s.hz, nil
}

// listedHostBits reads the mask of persistence: a netmask for IPv4, the length of a prefix for
// IPv6. The kernel keeps the length in host byte order but prints it byte-swapped.
func listedHostBits(k ServerKey, mask uint32) uint8 {
	if k.Addr.Is4() {
		return uint8(bits.OnesCount32(^mask))
	}
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], mask)
	return uint8(128 - min(binary.NativeEndian.Uint32(b[:]), 128))
}

func listedForward(b []byte) (forward uint8, ok bool) {
	switch string(b) {
	case "Masq":
		return ForwardMasq, true
	case "Local":
		return ForwardLocal, true
	case "Tunnel":
		return ForwardTunnel, true
	case "Route":
		return ForwardRoute, true
	default:
		return 0, false
	}
}
