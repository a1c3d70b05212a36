package ipvs

import (
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/internal/model"
)

// bound lists the addresses that a frontend has bound, one or none.
func bound(f *model.Frontend) map[netip.Addr]struct{} {
	if f == nil || !f.Bind {
		return nil
	}
	return map[netip.Addr]struct{}{f.Key.Addr: {}}
}
