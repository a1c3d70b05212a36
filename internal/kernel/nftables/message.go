package nftables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
)

// Numbers of netlink, nfnetlink and nf_tables (include/uapi/linux/netlink.h,
// netfilter/nfnetlink.h, netfilter/nf_tables.h), spelled out so that the codec
// builds on every OS.
const (
	headerLen = 16
	familyLen = 4 // struct nfgenmsg
	attrLen   = 4

	nlError = 2
	nlDone  = 3

	flagRequest = 0x1
	flagAck     = 0x4
	flagDump    = 0x300
	flagIntr    = 0x10 // answer: the dump met a change

	subsystem  = 10 // NFNL_SUBSYS_NFTABLES
	group      = 7  // NFNLGRP_NFTABLES
	batchBegin = 0x10
	batchEnd   = 0x11
	newTable   = subsystem << 8
	getTable   = subsystem<<8 | 1
	delTable   = subsystem<<8 | 2
	newRule    = subsystem<<8 | 6
	getRule    = subsystem<<8 | 7
	newGen     = subsystem<<8 | 15
	getGen     = subsystem<<8 | 16

	tableName    = 1
	genID        = 1
	genPID       = 2
	genProgram   = 3
	ruleChain    = 2 // beside tableName, in a question for rules
	verdictChain = 2
)

var errMalformed = errors.New("malformed netlink answer")

// native is the byte order of netlink headers; nfgenmsg has a number in network
// byte order.
var native = binary.NativeEndian

// appendMessage adds a message with at most one attribute, a name.
func appendMessage(b []byte, kind, flags uint16, seq uint32, family uint8, name string) []byte {
	mark := len(b)
	b = native.AppendUint32(b, 0) // length, filled in below
	b = native.AppendUint16(b, kind)
	b = native.AppendUint16(b, flagRequest|flags)
	b = native.AppendUint32(b, seq)
	b = native.AppendUint32(b, 0) // sender: the kernel fills it in
	var resource uint16
	if kind == batchBegin || kind == batchEnd {
		resource = subsystem
	}
	b = append(b, family, 0)
	b = binary.BigEndian.AppendUint16(b, resource)
	if name != "" { // a deletion without one would empty the family: see Key.Check
		b = appendAttr(b, tableName, append([]byte(name), 0))
	}
	native.PutUint32(b[mark:], uint32(len(b)-mark))
	return b
}

// appendRules adds the question for all rules of one chain.
func appendRules(b []byte, seq uint32, table Key, chain string) []byte {
	mark := len(b)
	b = appendMessage(b, getRule, flagDump, seq, families[table.Family], table.Name)
	b = appendAttr(b, ruleChain, append([]byte(chain), 0))
	native.PutUint32(b[mark:], uint32(len(b)-mark))
	return b
}

// leadsTo tells whether a message that describes a rule has a verdict that names a chain.
func (m message) leadsTo(chain string) bool {
	return m.kind == newRule && bytes.Contains(m.body, appendAttr(nil, verdictChain, append([]byte(chain), 0)))
}

func appendAttr(b []byte, kind uint16, value []byte) []byte {
	b = native.AppendUint16(b, uint16(attrLen+len(value)))
	b = native.AppendUint16(b, kind)
	b = append(b, value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// message is one answer of the kernel.
type message struct {
	kind, flags uint16
	seq, port   uint32
	body        []byte
}

// nextMessage cuts the first message off a datagram.
func nextMessage(b []byte) (m message, rest []byte, err error) {
	if len(b) < headerLen {
		return m, nil, fmt.Errorf("%w: %d bytes of header", errMalformed, len(b))
	}
	length := int(native.Uint32(b))
	if length < headerLen || length > len(b) {
		return m, nil, fmt.Errorf("%w: message of %d bytes in %d", errMalformed, length, len(b))
	}
	m = message{kind: native.Uint16(b[4:]), flags: native.Uint16(b[6:]), seq: native.Uint32(b[8:]), port: native.Uint32(b[12:]), body: b[headerLen:length]}
	return m, b[min(align(length), len(b)):], nil
}

func align(n int) int { return (n + 3) &^ 3 }

// verdict is the number in an error or in the end of a dump, 0 for success.
func (m message) verdict() (syscall.Errno, error) {
	if len(m.body) < 4 {
		if m.kind == nlDone {
			return 0, nil
		}
		return 0, fmt.Errorf("%w: verdict of %d bytes", errMalformed, len(m.body))
	}
	code := int32(native.Uint32(m.body))
	if code > 0 {
		return 0, fmt.Errorf("%w: verdict %d", errMalformed, code)
	}
	return syscall.Errno(-code), nil
}

// table reads a message that describes one.
func (m message) table() (Key, error) {
	if m.kind != newTable || len(m.body) < familyLen {
		return Key{}, fmt.Errorf("%w: message %#x of %d bytes for a table", errMalformed, m.kind, len(m.body))
	}
	value, err := m.attr(tableName)
	if err != nil {
		return Key{}, err
	}
	name, _, _ := bytes.Cut(value, []byte{0})
	if len(name) == 0 {
		return Key{}, fmt.Errorf("%w: table without a name", errMalformed)
	}
	return Key{Family: familyName(m.body[0]), Name: string(name)}, nil
}

// generation reads a message that tells the number of the last transaction.
func (m message) generation() (uint32, error) {
	if m.kind != newGen || len(m.body) < familyLen {
		return 0, fmt.Errorf("%w: message %#x of %d bytes for a generation", errMalformed, m.kind, len(m.body))
	}
	value, err := m.attr(genID)
	if err != nil {
		return 0, err
	}
	if len(value) != 4 {
		return 0, fmt.Errorf("%w: generation of %d bytes", errMalformed, len(value))
	}
	return binary.BigEndian.Uint32(value), nil
}

// attr is the value of the last attribute of a kind, nil if there is none.
func (m message) attr(kind uint16) (value []byte, err error) {
	for b := m.body[familyLen:]; len(b) >= attrLen; {
		length := int(native.Uint16(b))
		if length < attrLen || length > len(b) {
			return nil, fmt.Errorf("%w: attribute of %d bytes in %d", errMalformed, length, len(b))
		}
		if native.Uint16(b[2:]) == kind {
			value = b[attrLen:length]
		}
		b = b[min(align(length), len(b)):]
	}
	return value, nil
}
