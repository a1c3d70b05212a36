package vserver

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"go.uber.org/zap"
)

// benchDestination is destination i of ten to a server.
func benchDestination(i int) DestinationChange {
	server := ServerKey{Addr: netip.AddrFrom4([4]byte{10, 96, byte(i / 10 >> 8), byte(i / 10)}), Port: 80, Protocol: ProtocolTCP}
	return DestinationChange{
		Op:          Add,
		Key:         DestinationKey{Server: server, Addr: netip.AddrFrom4([4]byte{10, 244, byte(i >> 8), byte(i)}), Port: 8080},
		Destination: Destination{Weight: 1},
	}
}

// BenchmarkEncode packs messages for the kernel into a buffer that is used again: the cost is that of each row.
func BenchmarkEncode(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("destinations=%d", n), func(b *testing.B) {
			changes := make([]DestinationChange, n)
			for i := range changes {
				changes[i] = benchDestination(i)
			}
			out := make(buffer, 0, n*160)
			b.ReportAllocs()
			for b.Loop() {
				out = out[:0]
				for i, c := range changes {
					mark := out.begin(28, nlRequest, uint32(i), cmdNewDestination)
					c.encode(&out, Add)
					out.end(mark)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/row")
		})
	}
}

// benchAnswer is what the kernel answers a dump of destinations with. Its messages have the
// requested fields, and counters that are not read.
func benchAnswer(n int) []byte {
	var out buffer
	for i := range n {
		c := benchDestination(i)
		begin := out.begin(28, 0, 1, cmdNewDestination)
		at := out.nest(attrDestination)
		out.destinationKey(c.Key)
		out.destinationValue(c.Destination)
		for _, counter := range []uint16{destActive, destInact, 9} {
			out.u32(counter, 5)
		}
		stats := out.nest(10)
		out = append(out, make([]byte, 80)...)
		out.unnest(stats)
		out.unnest(at)
		out.end(begin)
	}
	return out
}

// BenchmarkDecode reads the answer to a dump, message by message.
func BenchmarkDecode(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("destinations=%d", n), func(b *testing.B) {
			answer := benchAnswer(n)
			if got := int(binary.NativeEndian.Uint32(answer)); len(answer) != got*n {
				b.Fatalf("messages of %d bytes in %d", got, len(answer))
			}
			server := benchDestination(0).Key.Server
			b.ReportAllocs()
			for b.Loop() {
				for rest := answer; len(rest) > 0; {
					m, next, err := nextMessage(rest)
					if err != nil {
						b.Fatal(err)
					}
					body, err := m.attributes()
					if err == nil {
						_, _, err = decodeDestination(server, body)
					}
					if err != nil {
						b.Fatal(err)
					}
					rest = next
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/row")
		})
	}
}

// deaf acknowledges the last message of whatever is sent, and does nothing about it.
type deaf struct{ ack [nlHeaderLen + 4]byte }

func (d *deaf) Send(b []byte) error {
	last := b
	for len(last) > 0 {
		n := int(native.Uint32(last))
		copy(d.ack[8:12], last[8:12])
		last = last[n:]
	}
	return nil
}

func (d *deaf) Receive(b []byte) (int, error) {
	native.PutUint32(d.ack[:], uint32(len(d.ack)))
	native.PutUint16(d.ack[4:], nlError)
	return copy(b, d.ack[:]), nil
}

func (d *deaf) PortID() uint32 { return 0 }
func (d *deaf) SendLimit() int { return sendLimit }
func (d *deaf) Close() error   { return nil }

// sendLimit is what a socket of a privileged process takes.
const sendLimit = 2 << 20

// BenchmarkWrite hands batches to a kernel that costs nothing: the rest is our own cost.
func BenchmarkWrite(b *testing.B) {
	for _, each := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("each=%d", each), func(b *testing.B) {
			h := &Handle{log: zap.NewNop(), opts: Options{}.Defaults(), wire: &deaf{}, family: 28, in: make([]byte, receiveSize)}
			changes := make([]DestinationChange, 1000)
			for i := range changes {
				changes[i] = benchDestination(i)
				changes[i].Key.Server.Addr = netip.AddrFrom4([4]byte{10, 96, byte(i / each >> 8), byte(i / each)})
			}
			b.ReportAllocs()
			for b.Loop() {
				if errs := h.WriteDestinations(b.Context(), changes); errs != nil {
					b.Fatal(errs)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(changes)), "ns/row")
		})
	}
}
