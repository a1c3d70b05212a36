package nftables

import (
	"errors"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nfnetlink"
)

// Wire is a netlink socket, for tests that play the kernel's side of it.
type Wire = nfnetlink.Socket

// NewOver is New on sockets of the test's own.
func NewOver(log *zap.Logger, opts Options, open func() (Wire, error)) *Handle {
	return newHandle(log, opts, open)
}

// Ear hears of transactions, for tests that play the kernel.
type Ear = ear

// NewHearing is New for a watch by sockets of the test's own.
func NewHearing(log *zap.Logger, listen func() (Ear, error)) *Handle {
	h := newHandle(log, Options{}, nil)
	h.listen = listen
	return h
}

// MakeTables makes tables in one transaction. With an owner they belong to the
// socket that is given back; closing it deletes them.
func (h *Handle) MakeTables(keys []Key, owned bool) (Wire, error) {
	s, err := nfnetlink.Inside(h.ns, func() (Wire, error) { return OpenSocket() })
	if err != nil {
		return nil, err
	}
	b := appendMessage(nil, nfnetlink.BatchBegin, 0, 1, 0, "")
	for i, k := range keys {
		mark := len(b)
		flags := uint16(0x400) // create
		if i == len(keys)-1 {
			flags |= nfnetlink.Ack
		}
		b = appendMessage(b, newTable, flags, uint32(2+i), families[k.Family], k.Name)
		if owned {
			w := nfnetlink.Builder{B: b}
			w.Number(2, 2) // NFTA_TABLE_FLAGS, NFT_TABLE_F_OWNER
			b = w.B
			nfnetlink.Native.PutUint32(b[mark:], uint32(len(b)-mark))
		}
	}
	b = appendMessage(b, nfnetlink.BatchEnd, 0, uint32(2+len(keys)), 0, "")
	if err := s.Send(b); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	x := nfnetlink.Session{Socket: s}
	err = x.Answers(func(m nfnetlink.Message) (bool, error) {
		errno, err := m.Verdict()
		if errno != 0 {
			err = errors.Join(err, errno)
		}
		return m.Seq == uint32(1+len(keys)), err
	})
	return s, err
}

// OpenSocket opens a socket in the calling thread's namespace.
func OpenSocket() (Wire, error) { return nfnetlink.Open(0) }

// OpenListener opens the socket of a watch, to be read.
func OpenListener() (Wire, error) {
	e, err := openEar()
	if err != nil {
		return nil, err
	}
	return e.(earSocket).Conn, nil
}
