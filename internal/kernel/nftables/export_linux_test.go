package nftables

import (
	"errors"

	"go.uber.org/zap"
)

// Wire is a netlink socket, for tests that play the kernel's side of it.
type Wire = wire

// NewOver is New on sockets of the test's own.
func NewOver(log *zap.Logger, opts Options, open func() (Wire, error)) *Handle {
	h := &Handle{log: log, opts: opts.Defaults(), open: open}
	return h
}

// Ear hears of transactions, for tests that play the kernel.
type Ear = ear

// NewHearing is New for a watch by sockets of the test's own.
func NewHearing(log *zap.Logger, listen func() (Ear, error)) *Handle {
	return &Handle{log: log, opts: Options{}.Defaults(), listen: listen}
}

// MakeTables makes tables in one transaction. With an owner they belong to the
// socket that is given back; closing it deletes them.
func (h *Handle) MakeTables(keys []Key, owned bool) (Wire, error) {
	s, err := h.open()
	if err != nil {
		return nil, err
	}
	b := appendMessage(nil, batchBegin, 0, 1, 0, "")
	for i, k := range keys {
		mark := len(b)
		flags := uint16(0x400) // create
		if i == len(keys)-1 {
			flags |= flagAck
		}
		b = appendMessage(b, newTable, flags, uint32(2+i), families[k.Family], k.Name)
		if owned {
			b = appendAttr(b, 2, []byte{0, 0, 0, 2}) // NFTA_TABLE_FLAGS, NFT_TABLE_F_OWNER
			native.PutUint32(b[mark:], uint32(len(b)-mark))
		}
	}
	b = appendMessage(b, batchEnd, 0, uint32(2+len(keys)), 0, "")
	if err := s.Send(b); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	x := exchange{wire: s}
	err = x.answers(func(m message) (bool, error) {
		errno, err := m.verdict()
		if errno != 0 {
			err = errors.Join(err, errno)
		}
		return m.seq == uint32(1+len(keys)), err
	})
	return s, err
}

// OpenSocket opens a socket in the calling thread's namespace.
func OpenSocket() (Wire, error) { return openSocket() }

// OpenListener opens the socket of a watch, to be read.
func OpenListener() (Wire, error) {
	e, err := openEar()
	if err != nil {
		return nil, err
	}
	s := e.(earSocket).socket
	s.in = make([]byte, receiveSize)
	return s, nil
}
