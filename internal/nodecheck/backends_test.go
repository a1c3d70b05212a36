package nodecheck

import (
	"context"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/tune"
)

func TestCheckBackends(t *testing.T) {
	for _, tt := range []struct {
		nft, legacy int
		state       tune.State
		fix         string
	}{
		{0, 0, tune.OK, ""}, {40, 0, tune.OK, ""}, {0, 40, tune.OK, ""},
		{40, 3, tune.Warn, "iptables-legacy -t $table -F"}, {2, 40, tune.Warn, "iptables-nft -t $table -F"},
	} {
		v := one(t, backendCheck(func(context.Context) map[rules.Backend]int {
			return map[rules.Backend]int{rules.NFT: tt.nft, rules.Legacy: tt.legacy}
		}))
		if v.State != tt.state || !strings.Contains(v.Fix, tt.fix) {
			t.Errorf("nft %d, legacy %d: %+v, want %s with %q", tt.nft, tt.legacy, v, tt.state, tt.fix)
		}
	}
}
