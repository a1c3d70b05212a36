package vserver

import (
	"io"

	"go.uber.org/zap"
)

// Wire is a netlink socket, for tests that play the kernel's side of it.
type Wire = wire

// Fuzzed decoders.
var (
	DecodeServer      = decodeServer
	DecodeDestination = decodeDestination
	DecodeConnections = decodeConnections

	DecodeDestinationTraffic = decodeDestinationTraffic
)

// NewOver is New on sockets and a list of the test's own.
func NewOver(log *zap.Logger, opts Options, open func() (Wire, error), list func() (io.ReadCloser, error)) (*Handle, error) {
	return newHandle(log, opts, testOpener{open, list})
}

// ReadCounts reads a list with a buffer of a chosen size.
func ReadCounts(text io.Reader, size int, wanted map[DestinationKey]struct{}) (map[DestinationKey]Connections, error) {
	counts := newCountList(wanted)
	l := list{rows: counts, buf: make([]byte, size)}
	err := l.read(func(b []byte) (int, error) { return io.ReadFull(text, b) })
	return counts.found, err
}

// ReadDigests reads a list with a buffer of a chosen size, and asks for servers where it
// has to.
func ReadDigests(text io.Reader, size int, ask func(ServerKey) (Server, bool, error), visit func(ServerKey, Digest)) error {
	s := digester{ask: ask, visit: visit}
	l := list{rows: &s, buf: make([]byte, size)}
	err := l.read(func(b []byte) (int, error) { return io.ReadFull(text, b) })
	if err == nil {
		s.close()
	}
	return err
}

// ReadLoads reads a list with a buffer of a chosen size.
func ReadLoads(text io.Reader, size int) (map[ServerKey]Load, error) {
	loads := &loadList{found: map[ServerKey]Load{}}
	l := list{rows: loads, buf: make([]byte, size)}
	err := l.read(func(b []byte) (int, error) { return io.ReadFull(text, b) })
	loads.close()
	return loads.found, err
}

// DecodeServerTraffic reads one row.
func DecodeServerTraffic(body []byte) (ServerKey, ServerTraffic, bool, error) {
	return decodeServerTraffic(body, map[string]string{})
}

// Drop gives the socket up, as a time-out does.
func Drop(h *Handle) { h.drop(ErrUnknown) }

type testOpener struct {
	sockets func() (wire, error)
	text    func() (io.ReadCloser, error)
}

func (o testOpener) open() (wire, error)          { return o.sockets() }
func (o testOpener) list() (io.ReadCloser, error) { return o.text() }
func (o testOpener) Close() error                 { return nil }

// ExtAck reads the verdict of the first message of a datagram.
func ExtAck(b []byte) (error, error) {
	m, _, err := nextMessage(b)
	if err != nil {
		return nil, err
	}
	a, err := m.answer()
	return a.fault(), err
}

// Walk cuts a datagram into messages and reads everything this package would read
// of each, for the sake of panics and endless loops only.
func Walk(b []byte) (messages int) {
	for len(b) > 0 {
		m, rest, err := nextMessage(b)
		if err != nil {
			return messages
		}
		messages++
		b = rest
		_, _ = m.answer()
		if body, err := m.attributes(); err == nil {
			_, _, _, _ = decodeServer(body)
			_, _, _ = decodeDestination(ServerKey{}, body)
			_, _, _ = decodeConnections(ServerKey{}, body)
			_, _, _, _ = decodeServerTraffic(body, map[string]string{})
			_, _, _ = decodeDestinationTraffic(ServerKey{}, body)
		}
	}
	return messages
}

// CountBy is Count by the kernel's list, or with a dump for each server.
func CountBy(h *Handle, list bool, wanted map[DestinationKey]struct{}) Counting {
	return &counting{h: h, counts: newCountList(wanted), listing: list}
}
