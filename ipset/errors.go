package ipset

import (
	"errors"
	"fmt"
	"syscall"
)

// The sentinels that errors of this package match with errors.Is.
var (
	ErrExist       = errors.New("already exists")
	ErrNotExist    = errors.New("does not exist") // a set, or an entry of a strict call
	ErrBusy        = errors.New("in use by the kernel")
	ErrUnsupported = errors.New("not supported")
	ErrInterrupted = errors.New("list was interrupted")
	ErrInvalid     = errors.New("invalid")

	// ErrFull means that a set has maxelem entries. Since Linux 5.6 the kernel
	// counts by regions of 1,024 buckets, so a set that has grown takes somewhat
	// more before it refuses, never less.
	ErrFull = errors.New("set is full")
)

// Op names an operation on a set.
type Op uint8

// The operations. A Change uses OpAdd and OpDelete only.
const (
	OpAdd Op = iota + 1
	OpDelete
	OpTest
	OpCreate
	OpDestroy
	OpFlush
	OpRename
	OpSwap
	OpList
	OpProbe
)

var opNames = [...]string{"unknown operation", "add", "delete", "test", "create", "destroy", "flush", "rename", "swap", "list", "probe"}

// String returns the operation in lower case.
func (o Op) String() string {
	if int(o) >= len(opNames) {
		return opNames[0]
	}
	return opNames[o]
}

// Error is a failed change: the operation, its set and entry, and the reason.
type Error struct {
	Op    Op
	Set   string // empty when the operation is about no set
	Other string // second set of a rename or swap
	Entry string // empty when the operation is about the whole set
	Err   error  // matches a sentinel, a context error or a syscall.Errno
}

// Error implements error: "add 10.96.0.1,tcp:80 to KUBE-CLUSTER-IP: set is full".
func (e *Error) Error() string {
	s := e.Op.String()
	if e.Entry != "" {
		s += " " + e.Entry + preposition[e.Op]
	}
	if e.Set != "" {
		s += " " + e.Set
	}
	if e.Other != "" {
		s += " and " + e.Other
	}
	return s + ": " + e.Err.Error()
}

var preposition = map[Op]string{OpAdd: " to", OpDelete: " from", OpTest: " in"}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// reason is the answer of the kernel in words, with its sentinel.
type reason struct {
	text string
	kind error // sentinel, may be nil
	code syscall.Errno
}

func (r *reason) Error() string { return r.text }

// Is matches the sentinel. The errno is matched too, so that a caller can tell
// EPERM from the rest without a sentinel of its own.
func (r *reason) Is(target error) bool { return target == r.kind || target == error(r.code) }

// The kernel's private error numbers (enum ipset_errno and the two per-type
// lists that share the numbers from 4352).
const (
	codeProtocol     syscall.Errno = 4097
	codeFindType     syscall.Errno = 4098
	codeMaxSets      syscall.Errno = 4099
	codeBusy         syscall.Errno = 4100
	codeExistName2   syscall.Errno = 4101
	codeTypeMismatch syscall.Errno = 4102
	codeExist        syscall.Errno = 4103
	codeInvalidCIDR  syscall.Errno = 4104
	codeNetmask      syscall.Errno = 4105
	codeFamily       syscall.Errno = 4106
	codeTimeout      syscall.Errno = 4107
	codeReferenced   syscall.Errno = 4108
	codeIPv4         syscall.Errno = 4109
	codeIPv6         syscall.Errno = 4110
	codeCounter      syscall.Errno = 4111
	codeComment      syscall.Errno = 4112
	codeMarkmask     syscall.Errno = 4113
	codeSkbinfo      syscall.Errno = 4114
	codeSpecific     syscall.Errno = 4352 // hash: full; bitmap: out of range
	codeSpecific1    syscall.Errno = 4353 // hash: null element; bitmap: range too big
	codeProto        syscall.Errno = 4354
	codeMissingProto syscall.Errno = 4355
	codeRangeUnsupp  syscall.Errno = 4356
	codeRange        syscall.Errno = 4357
)

// reasons holds the codes whose meaning does not depend on the operation.
var reasons = map[syscall.Errno]reason{
	codeProtocol:     {text: "kernel refused the message as malformed", kind: ErrUnsupported},
	codeFindType:     {text: "kernel does not support this set type", kind: ErrUnsupported},
	codeMaxSets:      {text: "kernel has no room for another set"},
	codeBusy:         {text: "set is in use by a rule or another set", kind: ErrBusy},
	codeTypeMismatch: {text: "sets of different type cannot be swapped", kind: ErrUnsupported},
	codeInvalidCIDR:  {text: "prefix length is invalid for this set type", kind: ErrInvalid},
	codeNetmask:      {text: "netmask is invalid", kind: ErrInvalid},
	codeFamily:       {text: "family is invalid for this set type", kind: ErrInvalid},
	codeTimeout:      {text: "set has no timeout support", kind: ErrInvalid},
	codeReferenced:   {text: "set is referenced by a rule or another set", kind: ErrBusy},
	codeIPv4:         {text: "an IPv4 address is needed", kind: ErrInvalid},
	codeIPv6:         {text: "an IPv6 address is needed", kind: ErrInvalid},
	codeCounter:      {text: "set has no counters", kind: ErrInvalid},
	codeComment:      {text: "set has no comments", kind: ErrInvalid},
	codeMarkmask:     {text: "mark mask is invalid", kind: ErrInvalid},
	codeSkbinfo:      {text: "set has no skbinfo", kind: ErrInvalid},
	codeSpecific1:    {text: "value cannot be stored in this set type", kind: ErrInvalid},
	codeProto:        {text: "protocol is invalid", kind: ErrInvalid},
	codeMissingProto: {text: "protocol is missing", kind: ErrInvalid},
	codeRangeUnsupp:  {text: "range is not supported", kind: ErrInvalid},
	codeRange:        {text: "range is invalid", kind: ErrInvalid},
	syscall.ENOENT:   {text: "set does not exist", kind: ErrNotExist},
	syscall.EEXIST:   {text: "set already exists", kind: ErrExist},
	syscall.EINVAL:   {text: "kernel has no ipset or refused the message", kind: ErrUnsupported},
	syscall.EBUSY:    {text: "set is being listed", kind: ErrBusy},
}

// explain turns a kernel code into a reason. bitmap selects which of the two
// per-type lists the code comes from.
func explain(op Op, code syscall.Errno, bitmap bool) error {
	switch {
	case code == codeExist && op == OpAdd:
		return &reason{"entry already exists", ErrExist, code}
	case code == codeExist:
		return &reason{"entry does not exist", ErrNotExist, code}
	case code == codeExistName2 && op == OpSwap:
		return &reason{"second set does not exist", ErrNotExist, code}
	case code == codeExistName2:
		return &reason{"a set with the new name already exists", ErrExist, code}
	case code == codeProtocol && (op == OpAdd || op == OpDelete || op == OpTest):
		return &reason{"entry does not fit the set", ErrInvalid, code}
	case code == codeSpecific && bitmap:
		return &reason{"port is outside the range of the set", ErrInvalid, code}
	case code == codeSpecific:
		return &reason{ErrFull.Error(), ErrFull, code}
	}
	if r, ok := reasons[code]; ok {
		r.code = code
		return &r
	}
	if code >= codeProtocol-1 {
		return &reason{fmt.Sprintf("kernel error %d", uint(code)), nil, code}
	}
	return code
}
