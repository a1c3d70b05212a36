package conntrack

import (
	"net/netip"

	"go.uber.org/zap"
)

// Wire is a socket, as a test plays it.
type Wire = wire

// openFunc opens sockets that a test plays.
type openFunc func() (Wire, error)

func (f openFunc) open() (wire, error) { return f() }
func (f openFunc) Close() error        { return nil }

// NewOver opens a Handle over sockets that a test plays.
func NewOver(log *zap.Logger, opts Options, open func() (Wire, error)) (*Handle, error) {
	return newHandle(log, opts, openFunc(open))
}

// DecodeFlow reads a flow from the body of a message as a sweep does. It returns its key, the peer that
// answers it, and the request that deletes it, if one can be made.
func DecodeFlow(body []byte) (k Key, answers netip.AddrPort, deletion []byte, err error) {
	f, err := decodeFlow(body)
	if err != nil {
		return k, answers, nil, err
	}
	reply, err := f.reply()
	if err != nil {
		return f.key(), answers, nil, err
	}
	deletion, ok, err := f.appendDeletion(nil, 1, 4)
	if !ok {
		deletion = nil
	}
	return f.key(), reply.source, deletion, err
}

// Digest reads a datagram as a sweep does, and returns how many messages it has.
func Digest(datagram []byte) (n int, err error) {
	_, err = digest(datagram, 0, ^uint32(0), func(m message) (bool, error) {
		n++
		_ = m.verdict()
		_, err := decodeFlow(m.body)
		return false, err
	})
	return n, err
}
