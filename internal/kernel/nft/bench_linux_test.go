package nft_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
)

// BenchmarkElements adds and deletes elements of one set, a pass each.
func BenchmarkElements(b *testing.B) {
	for _, n := range []int{1, 512, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			h := openKernel(b)
			defer h.Close()
			set, k := nft.Set{Shape: nft.AddrPort}, nft.Key{Family: nft.IPv4, Name: "services"}
			if err := h.Apply(b.Context(), nft.Pass{
				Tables: []nft.TableChange{{Op: nft.Add, Family: nft.IPv4}}, Sets: []nft.SetChange{{Op: nft.Add, Key: k, Set: set}},
			}).Err(); err != nil {
				b.Fatal(err)
			}
			var p nft.Pass
			for i := range n {
				e := nft.Element{Addr: netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), Protocol: nft.TCP, Port: 80}
				p.Elements = append(p.Elements, nft.ElementChange{Key: k, Set: set, Element: e})
			}
			b.ReportAllocs()
			for b.Loop() {
				for _, op := range []nft.Op{nft.Add, nft.Delete} {
					for i := range p.Elements {
						p.Elements[i].Op = op
					}
					if err := h.Apply(b.Context(), p).Err(); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
