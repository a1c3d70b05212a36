package vserver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"syscall"

	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
)

// errMalformed: the kernel's answer does not parse. It cannot be skipped, as
// nothing tells what was lost.
var errMalformed = errors.New("malformed netlink answer")

// message is one netlink message of an answer.
type message struct {
	kind, flags uint16
	seq, port   uint32
	body        []byte
}

// nextMessage cuts the first message off a datagram.
func nextMessage(b []byte) (m message, rest []byte, err error) {
	if len(b) < nlHeaderLen {
		return m, nil, fmt.Errorf("%w: %d bytes of header", errMalformed, len(b))
	}
	length := int64(native.Uint32(b))
	if length < nlHeaderLen || length > int64(len(b)) {
		return m, nil, fmt.Errorf("%w: length %d of %d", errMalformed, length, len(b))
	}
	m = message{
		kind: native.Uint16(b[4:]), flags: native.Uint16(b[6:]),
		seq: native.Uint32(b[8:]), port: native.Uint32(b[12:]),
		body: b[nlHeaderLen:length],
	}
	return m, b[min(align4(int(length)), len(b)):], nil
}

// answer reads the verdict of an error message, or the status at the end of a
// dump: both begin with a negated errno.
func (m message) answer() (answer, error) {
	if len(m.body) < 4 {
		return answer{}, fmt.Errorf("%w: verdict of %d bytes", errMalformed, len(m.body))
	}
	code := -int64(int32(native.Uint32(m.body)))
	if code < 0 || code > math.MaxUint16 {
		code = 0 // a positive status at the end of a dump is a count
	}
	return answer{known: true, errno: syscall.Errno(code), text: m.extAck()}, nil
}

// extAck finds the kernel's explanation behind the verdict. It is decoration:
// whatever does not parse is left out.
func (m message) extAck() string {
	const verdictLen = 4 + nlHeaderLen
	if m.kind != nlError || m.flags&nlTLVs == 0 || m.flags&nlCapped == 0 || len(m.body) < verdictLen {
		return ""
	}
	text := ""
	_ = eachAttr(m.body[verdictLen:], func(kind uint16, value []byte) error {
		if kind == extAckText {
			text = cString(value)
		}
		return nil
	})
	return text
}

// attributes gives the part behind the generic netlink header.
func (m message) attributes() ([]byte, error) {
	if len(m.body) < genlHeaderLen {
		return nil, fmt.Errorf("%w: body of %d bytes", errMalformed, len(m.body))
	}
	return m.body[genlHeaderLen:], nil
}

// eachAttr walks attributes until the end or the first error.
func eachAttr(b []byte, visit func(kind uint16, value []byte) error) error {
	for len(b) >= attrHeaderLen {
		length := int(native.Uint16(b))
		if length < attrHeaderLen || length > len(b) {
			return fmt.Errorf("%w: attribute length %d of %d", errMalformed, length, len(b))
		}
		kind := native.Uint16(b[2:]) & 0x3fff // less the nested and byte order bits
		if err := visit(kind, b[attrHeaderLen:length]); err != nil {
			return err
		}
		b = b[min(align4(length), len(b)):]
	}
	return nil
}

// fields collects the attributes of one nest by number; unknown ones and those
// beyond the highest this package reads are dropped.
type fields [16][]byte

func readFields(b []byte) (f fields, err error) {
	err = eachAttr(b, func(kind uint16, value []byte) error {
		if int(kind) < len(f) {
			f[kind] = value
		}
		return nil
	})
	return f, err
}

// nested finds the attributes inside the first-level attribute of a kind.
func nested(body []byte, kind uint16) (f fields, err error) {
	outer, err := readFields(body)
	if err != nil {
		return f, err
	}
	if outer[kind] == nil {
		return f, fmt.Errorf("%w: no attribute %d", errMalformed, kind)
	}
	return readFields(outer[kind])
}

func (f fields) u16(kind int) (uint16, error) {
	if len(f[kind]) < 2 {
		return 0, fmt.Errorf("%w: attribute %d of %d bytes", errMalformed, kind, len(f[kind]))
	}
	return native.Uint16(f[kind]), nil
}

func (f fields) u32(kind int) (uint32, error) {
	if len(f[kind]) < 4 {
		return 0, fmt.Errorf("%w: attribute %d of %d bytes", errMalformed, kind, len(f[kind]))
	}
	return native.Uint32(f[kind]), nil
}

func (f fields) port(kind int) (uint16, error) {
	if len(f[kind]) < 2 {
		return 0, fmt.Errorf("%w: port of %d bytes", errMalformed, len(f[kind]))
	}
	return binary.BigEndian.Uint16(f[kind]), nil
}

// addr lets the family decide how many of the 16 bytes count: guessing from
// zeros takes some IPv6 addresses for IPv4.
func (f fields) addr(kind int, family uint16) (netip.Addr, error) {
	size := 16
	if family == afInet {
		size = 4
	} else if family != afInet6 {
		return netip.Addr{}, fmt.Errorf("%w: address family %d", errMalformed, family)
	}
	if len(f[kind]) < size {
		return netip.Addr{}, fmt.Errorf("%w: address of %d bytes", errMalformed, len(f[kind]))
	}
	a, _ := netip.AddrFromSlice(f[kind][:size])
	return a, nil
}

// decodeServer reads one row of a server dump. Servers chosen by firewall mark
// have no address; they are foreign to this package and reported as not mine.
func decodeServer(body []byte) (k ServerKey, s Server, mine bool, err error) {
	f, err := nested(body, attrServer)
	if err != nil {
		return k, s, false, err
	}
	if f[serverMark] != nil {
		return k, s, false, nil
	}
	if k, err = f.serverKey(); err != nil {
		return k, s, false, err
	}
	s, err = f.server(k.Addr.Is4())
	return k, s, true, err
}

func (f fields) serverKey() (ServerKey, error) {
	family, errFamily := f.u16(serverFamily)
	protocol, errProtocol := f.u16(serverProtocol)
	port, errPort := f.port(serverPort)
	if err := errors.Join(errFamily, errProtocol, errPort); err != nil {
		return ServerKey{}, err
	}
	addr, err := f.addr(serverAddr, family)
	return ServerKey{Addr: addr, Port: port, Protocol: netkey.Protocol(protocol)}, err
}

func (f fields) server(is4 bool) (Server, error) {
	flags, errFlags := f.u32(serverFlags)
	timeout, errTimeout := f.u32(serverTimeout)
	netmask, errNetmask := f.u32(serverNetmask)
	if err := errors.Join(errFlags, errTimeout, errNetmask); err != nil {
		return Server{}, err
	}
	s := Server{
		Scheduler: cString(f[serverScheduler]), Flags: flags &^ flagHashed, Timeout: timeout,
		HostBits: uint8(bits.OnesCount32(^netmask)), Engine: cString(f[serverEngine]),
	}
	if !is4 {
		s.HostBits = uint8(128 - min(netmask, 128))
	}
	return s, nil
}

// decodeDestination reads one row of a server's destination dump.
func decodeDestination(server ServerKey, body []byte) (k DestinationKey, d Destination, err error) {
	f, err := nested(body, attrDestination)
	if err == nil {
		k, err = f.destinationKey(server)
	}
	if err == nil {
		d, err = f.destination()
	}
	return k, d, err
}

// decodeConnections reads the counts of the same row.
func decodeConnections(server ServerKey, body []byte) (k DestinationKey, c Connections, err error) {
	f, err := nested(body, attrDestination)
	if err == nil {
		k, err = f.destinationKey(server)
	}
	active, errActive := f.u32(destActive)
	inactive, errInactive := f.u32(destInact)
	c = Connections{Active: uint32(max(int32(active), 0)), Inactive: uint32(max(int32(inactive), 0))}
	return k, c, errors.Join(err, errActive, errInactive)
}

func (f fields) destinationKey(server ServerKey) (k DestinationKey, err error) {
	family := addrFamily(server.Addr)
	if f[destFamily] != nil { // missing before Linux 3.18, which knew no mixed pools
		if family, err = f.u16(destFamily); err != nil {
			return k, err
		}
	}
	port, errPort := f.port(destPort)
	addr, errAddr := f.addr(destAddr, family)
	return DestinationKey{Server: server, Addr: addr, Port: port}, errors.Join(errPort, errAddr)
}

func (f fields) destination() (Destination, error) {
	forward, errForward := f.u32(destForward)
	weight, errWeight := f.u32(destWeight)
	upper, errUpper := f.u32(destUpper)
	lower, errLower := f.u32(destLower)
	if err := errors.Join(errForward, errWeight, errUpper, errLower); err != nil {
		return Destination{}, err
	}
	d := Destination{
		Weight:  uint16(min(weight, math.MaxUint16)),
		Forward: uint8(forward & 0x7),
		Upper:   upper, Lower: lower,
	}
	return d, f.tunnel(&d)
}

// tunnel reads what kernels tell that have more than one kind of them. It counts for tunnels alone.
func (f fields) tunnel(d *Destination) error {
	if d.Forward != ForwardTunnel || len(f[destTunnel]) == 0 || f[destTunnel][0] == TunnelIPIP {
		return nil
	}
	port, errPort := f.port(destTunPort)
	flags, errFlags := f.u16(destTunFlag)
	d.Tunnel, d.TunnelPort, d.TunnelFlags = f[destTunnel][0], port, flags
	return errors.Join(errPort, errFlags)
}

func cString(b []byte) string {
	text, _, _ := bytes.Cut(b, []byte{0})
	return string(text)
}

func align4(n int) int { return (n + 3) &^ 3 }
