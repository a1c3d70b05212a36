package link

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"
)

// BenchmarkEncode packs additions of addresses, by hand and by the library: the cost is
// that of each address.
func BenchmarkEncode(b *testing.B) {
	out := make([]byte, 0, maxChange)
	for name, pack := range map[string]func(Change){
		"packed":  func(c Change) { out = appendChange(out[:0], c, 7, 1, 0) },
		"library": func(c Change) { changeAddr(c, 7).Serialize() },
	} {
		b.Run(name, func(b *testing.B) {
			const n = 1000
			b.ReportAllocs()
			for b.Loop() {
				for i := range n {
					pack(benchChange(i))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/address")
		})
	}
}

// BenchmarkDecode reads the addresses of a dump.
func BenchmarkDecode(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("addresses=%d", n), func(b *testing.B) {
			var dump []byte
			for i := range n {
				dump = append(dump, changeAddr(benchChange(i), 7).Serialize()...)
			}
			b.ReportAllocs()
			for b.Loop() {
				messages, err := syscall.ParseNetlinkMessage(dump)
				if err != nil || len(messages) != n {
					b.Fatalf("%d messages, %v", len(messages), err)
				}
				for _, m := range messages {
					if a, ok := parseAddr(m); !ok || !a.host || a.index != 7 {
						b.Fatalf("%+v, %t", a, ok)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/address")
		})
	}
}

func benchChange(i int) Change {
	return Change{Op: Add, Addr: netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})}
}
