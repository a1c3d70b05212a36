package nfnetlink

import (
	"io"
	"time"
)

// Socket is a netlink socket of this family.
type Socket interface {
	// Send gives one buffer of messages to the kernel, which has worked through all of them
	// when Send returns. Send may block for any time.
	Send([]byte) error
	// Receive takes one datagram, valid until the next call.
	Receive() ([]byte, error)
	// Interrupt ends a Receive that waits, and all later ones.
	Interrupt()
	io.Closer
}

// Session is one call's use of a socket.
type Session struct {
	Socket
	// Seq is the sequence number of the last request.
	Seq uint32
}

// Answers hands the kernel's messages to visit until that is done.
func (s *Session) Answers(visit func(Message) (done bool, err error)) error {
	for {
		datagram, err := s.Receive()
		if err != nil {
			return err
		}
		for len(datagram) > 0 {
			var m Message
			if m, datagram, err = Next(datagram); err != nil {
				return err
			}
			if done, err := visit(m); done || err != nil {
				return err
			}
		}
	}
}

// Options tune a Caller.
type Options struct {
	// Timeout bounds every call.
	Timeout time.Duration
	// Called receives how long the caller waited, and what the call returned: context.DeadlineExceeded
	// where the kernel did not answer. It must not block.
	Called func(took time.Duration, err error)
	// LeftBehind receives the reason for which a call was left behind inside the kernel.
	LeftBehind func(err error)
}
