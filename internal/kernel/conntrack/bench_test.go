package conntrack_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/conntrack"
)

// BenchmarkDecode reads flows as a sweep does that passes them by: the messages of a datagram, and whose each flow is. The cost is that of
// each flow, and none takes memory.
func BenchmarkDecode(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("flows=%d", n), func(b *testing.B) {
			var datagram []byte
			for i := range n {
				datagram = appendMessage(datagram, row(from(dns, fmt.Sprintf("10.244.%d.%d:4001", i>>8, i&255), "10.244.1.1:5353"), uint32(i)))
			}
			b.ReportAllocs()
			for b.Loop() {
				if got, err := conntrack.Digest(datagram); got != n || err != nil {
					b.Fatalf("%d flows, %v", got, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/flow")
		})
	}
}

// appendMessage puts a netlink header before a flow, of IPCTNL_MSG_CT_NEW in a dump.
func appendMessage(b, body []byte) []byte {
	b = binary.NativeEndian.AppendUint32(b, uint32(16+len(body)))
	b = binary.NativeEndian.AppendUint16(b, 1<<8)
	b = binary.NativeEndian.AppendUint16(b, 2) // NLM_F_MULTI
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = append(b, body...)
	return append(b, make([]byte, -len(b)&3)...)
}
