package ipset

import (
	"context"
	"encoding/binary"
	"errors"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Handle is one netlink socket to the ipset subsystem of one network
// namespace. It is not safe for concurrent use: one goroutine owns it.
//
// Calls wait for the kernel until the context ends or Options.Timeout passed.
// Without a reply the outcome is unknown; the socket is replaced and the caller
// lists again.
type Handle struct {
	conn      *conn
	msg       message
	revisions map[typeKey]uint8
}

type typeKey struct {
	typ    Type
	family Family
}

// New opens a handle on the network namespace of the calling thread; lock the
// goroutine to its thread first when that is not the process's own. It fails
// with ErrUnsupported on a kernel without netfilter netlink.
func New(o Options) (*Handle, error) {
	if err := o.Validate(); err != nil {
		return nil, &Error{Op: OpProbe, Err: err}
	}
	c, err := dial(o.Defaults())
	if err != nil {
		return nil, &Error{Op: OpProbe, Err: err}
	}
	return &Handle{conn: c, revisions: map[typeKey]uint8{}}, nil
}

// Close releases the socket. Later calls fail with os.ErrClosed.
func (h *Handle) Close() error { return h.conn.close() }

// Probe asks the kernel which protocol versions it speaks. It fails with
// ErrUnsupported when the kernel has no ipset, or only newer versions than 6.
func (h *Handle) Probe(ctx context.Context) (Version, error) {
	var v Version
	h.begin(nl.IPSET_CMD_PROTOCOL, 0)
	err := h.ask(ctx, func(a attr) {
		switch a.typ {
		case nl.IPSET_ATTR_PROTOCOL:
			v.Protocol = a.u8()
		case nl.IPSET_ATTR_PROTOCOL_MIN:
			v.Min = a.u8()
		}
	})
	if v.Min == 0 { // kernels that speak one version do not name a minimum
		v.Min = v.Protocol
	}
	if err == nil && (v.Protocol < nl.IPSET_PROTOCOL || v.Min > nl.IPSET_PROTOCOL) {
		err = ErrUnsupported
	}
	if err != nil {
		return Version{}, fail(OpProbe, Error{}, err)
	}
	return v, nil
}

// maxRevision is, per type, the newest revision whose features we use, or any tool in the field
// reads. The kernel's newest revision must not be used: a tool older than the kernel refuses to
// list anything while such a set exists. An older tool is common after a rollback to another proxy.
var maxRevision = map[Type]uint8{
	HashIP:        4,
	HashIPPort:    5,
	HashIPPortIP:  5,
	HashIPPortNet: 7,
	BitmapPort:    3,
}

// Revision returns the revision that Create uses for a type and family: the newest that both kernel
// and package support. The kernel is asked once. It fails with ErrUnsupported when the kernel has
// no such type.
func (h *Handle) Revision(ctx context.Context, t Type, f Family) (uint8, error) {
	if rev, ok := h.revisions[typeKey{t, f}]; ok {
		return rev, nil
	}
	if !t.Supported() {
		return 0, &Error{Op: OpProbe, Entry: string(t), Err: ErrUnsupported}
	}
	var lowest, highest uint8
	h.begin(nl.IPSET_CMD_TYPE, 0)
	h.msg.str(nl.IPSET_ATTR_TYPENAME, string(t))
	h.msg.u8(nl.IPSET_ATTR_FAMILY, uint8(f))
	err := h.ask(ctx, func(a attr) {
		switch a.typ {
		case nl.IPSET_ATTR_REVISION:
			highest = a.u8()
		case nl.IPSET_ATTR_REVISION_MIN:
			lowest = a.u8()
		}
	})
	if err != nil {
		return 0, fail(OpProbe, Error{Entry: string(t)}, err)
	}
	rev := max(lowest, min(highest, maxRevision[t]))
	h.revisions[typeKey{t, f}] = rev
	return rev, nil
}

// begin starts the one message of a request.
func (h *Handle) begin(cmd, flags uint16) {
	h.msg.b = h.msg.b[:0]
	h.next(cmd, flags)
}

// next starts another message of a request.
func (h *Handle) next(cmd, flags uint16) {
	h.conn.seq++
	h.msg.begin(cmd, flags, h.conn.seq)
}

// command ends a request that is answered by an acknowledgement alone.
func (h *Handle) command(ctx context.Context) error {
	h.msg.end()
	var code error
	_, err := h.verdicts(ctx, 1, func(_ int, c error, _ []byte) { code = c })
	return errors.Join(err, code)
}

// verdicts sends n prepared messages and calls each with the kernel's answer to each of them. code
// is nil for a message that was carried out, and body is the text of the answer. It answers in
// order, so those behind the answered ones are of unknown state.
func (h *Handle) verdicts(ctx context.Context, n int, each func(i int, code error, body []byte)) (answered int, err error) {
	first := h.conn.seq - uint32(n) + 1
	err = h.conn.exchange(ctx, h.msg.b, first, func(r reply) (done bool, err error) {
		if r.typ != unix.NLMSG_ERROR {
			return false, nil
		}
		code, err := status(r.body)
		if err != nil {
			return false, err
		}
		each(int(r.seq-first), code, r.body)
		answered++
		return answered == n, nil
	})
	return answered, err
}

// ask ends a request that is answered by one message of attributes.
func (h *Handle) ask(ctx context.Context, each func(attr)) error {
	h.msg.end()
	var code error
	err := h.conn.exchange(ctx, h.msg.b, h.conn.seq, func(r reply) (done bool, err error) {
		if r.typ == unix.NLMSG_ERROR {
			code, err = status(r.body)
			return true, err
		}
		return true, eachAttr(r.body, each)
	})
	return errors.Join(err, code)
}

// eachAttr calls each for the attributes behind the nfgenmsg.
func eachAttr(body []byte, each func(attr)) error {
	for a, err := range attrs(body[min(len(body), headerLen-unix.SizeofNlMsghdr):]) {
		if err != nil {
			return err
		}
		each(a)
	}
	return nil
}

// answer is an error code of the kernel's, kept apart from those of the socket
// calls until it is put in words.
type answer syscall.Errno

func (a answer) Error() string { return syscall.Errno(a).Error() }

// status reads an error message: code is nil for an acknowledgement.
func status(body []byte) (code, err error) {
	if len(body) < 4 {
		return nil, errMalformed
	}
	if n := -int32(binary.NativeEndian.Uint32(body)); n != 0 {
		return answer(n), nil
	}
	return nil, nil
}

// fail wraps an error into an *Error, putting a kernel code in words.
func fail(op Op, e Error, err error) error {
	if err == nil {
		return nil
	}
	var code answer
	if errors.As(err, &code) {
		err = explain(op, syscall.Errno(code), false)
	}
	e.Op, e.Err = op, err
	return &e
}
