package capture

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/net/bpf"
)

// keep is how many bytes of a packet are copied: both headers with options, and of a
// message of ICMP those of the packet that it quotes.
const keep = 256

// layout is where headers of a family have what the filter looks at. A packet socket
// without link headers (SOCK_DGRAM) runs it from the network header on.
type layout struct {
	version, protocol uint32
	src, dst          uint32
	icmp              uint8
	refusals          []uint32 // types of ICMP
	words             int      // number of words of an address, 32 bits each
}

var (
	layout4 = layout{version: 4, protocol: 9, src: 12, dst: 16, icmp: ICMP, refusals: []uint32{unreachable4, exceeded4}, words: 1}
	layout6 = layout{version: 6, protocol: 6, src: 8, dst: 24, icmp: ICMPv6, refusals: []uint32{unreachable6, tooBig6, exceeded}, words: 4}
)

// program compiles a filter. Conditional jumps go over 255 instructions at most, so each
// test that fails jumps over its own few, and what passes returns at once.
func program(f Filter) []bpf.Instruction {
	l := layout6
	if f.Endpoints[0].Addr().Is4() {
		l = layout4
	}
	quotes := l.quotes(f.Endpoints)
	prog := []bpf.Instruction{
		bpf.LoadAbsolute{Off: 0, Size: 1},
		bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: l.version, SkipTrue: 1},
		bpf.RetConstant{},
		bpf.LoadAbsolute{Off: l.protocol, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(l.icmp), SkipTrue: 1},
		bpf.Jump{Skip: uint32(len(quotes))},
	}
	prog = append(prog, quotes...)
	prog = append(prog,
		bpf.LoadAbsolute{Off: l.protocol, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(f.Protocol), SkipTrue: 1},
		bpf.RetConstant{})
	prog = append(prog, l.transport()...)
	for _, e := range f.Endpoints {
		prog = append(prog, l.end(e, l.src, 0)...)
		prog = append(prog, l.end(e, l.dst, 2)...)
	}
	return append(prog, bpf.RetConstant{})
}

// transport puts where the transport header begins into X, and lets no fragment by that
// has none.
func (l layout) transport() []bpf.Instruction {
	if l.version == 6 {
		return []bpf.Instruction{bpf.LoadConstant{Dst: bpf.RegX, Val: ipv6Header}}
	}
	const offset = 0x1fff
	return []bpf.Instruction{
		bpf.LoadAbsolute{Off: 6, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: offset, SkipFalse: 1},
		bpf.RetConstant{},
		bpf.LoadMemShift{Off: 0},
	}
}

// end keeps packets one end of which is an endpoint: its address at an offset of the
// network header, its port at one of the transport header. The port comes first, for it
// tells most packets apart.
func (l layout) end(e netip.AddrPort, addr, port uint32) []bpf.Instruction {
	match := l.address(e.Addr(), func(i uint32) bpf.Instruction { return bpf.LoadAbsolute{Off: addr + i, Size: 4} })
	return append([]bpf.Instruction{
		bpf.LoadIndirect{Off: port, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(e.Port()), SkipTrue: uint8(len(match))},
	}, match...)
}

// address keeps packets that have an address where load finds its words.
func (l layout) address(a netip.Addr, load func(offset uint32) bpf.Instruction) []bpf.Instruction {
	var out []bpf.Instruction
	b := a.AsSlice()
	for i := range l.words {
		left := 2*(l.words-1-i) + 1 // the words that come, and the return
		out = append(out, load(uint32(4*i)),
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: binary.BigEndian.Uint32(b[4*i:]), SkipTrue: uint8(left)})
	}
	return append(out, bpf.RetConstant{Val: keep})
}

// quotes accepts ICMP messages that refuse a packet with one of the addresses; the reader compares
// ports. It ends with a return.
func (l layout) quotes(endpoints []netip.AddrPort) []bpf.Instruction {
	out := []bpf.Instruction{bpf.LoadMemShift{Off: 0}}
	if l.version == 6 {
		out[0] = bpf.LoadConstant{Dst: bpf.RegX, Val: ipv6Header}
	}
	out = append(out, bpf.LoadIndirect{Off: 0, Size: 1})
	for i, kind := range l.refusals {
		out = append(out, bpf.JumpIf{Cond: bpf.JumpEqual, Val: kind, SkipTrue: uint8(len(l.refusals) - i)})
	}
	out = append(out, bpf.RetConstant{})
	seen := map[netip.Addr]bool{}
	for _, e := range endpoints {
		if a := e.Addr(); !seen[a] {
			seen[a] = true
			for _, at := range []uint32{l.src, l.dst} {
				out = append(out, l.address(a, func(i uint32) bpf.Instruction {
					return bpf.LoadIndirect{Off: icmpHeader + at + i, Size: 4}
				})...)
			}
		}
	}
	return append(out, bpf.RetConstant{})
}
