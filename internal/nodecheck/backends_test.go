package nodecheck

import (
	"context"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

func TestCheckBackends(t *testing.T) {
	for _, tt := range []struct {
		nft, legacy int
		state       diagnosis.State
		fix         string
	}{
		{0, 0, diagnosis.OK, ""}, {40, 0, diagnosis.OK, ""}, {0, 40, diagnosis.OK, ""},
		{40, 3, diagnosis.Warn, "iptables-legacy -t $table -F"}, {2, 40, diagnosis.Warn, "iptables-nft -t $table -F"},
	} {
		v := one(t, backendCheck(func(context.Context) map[rules.Backend]int {
			return map[rules.Backend]int{rules.NFT: tt.nft, rules.Legacy: tt.legacy}
		}))
		if v.State != tt.state || !strings.Contains(v.Fix, tt.fix) {
			t.Errorf("nft %d, legacy %d: %+v, want %s with %q", tt.nft, tt.legacy, v, tt.state, tt.fix)
		}
	}
}
