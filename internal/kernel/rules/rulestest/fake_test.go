package rulestest_test

import (
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules/rulestest"
)

func TestFakeKeepsContract(t *testing.T) {
	for _, b := range []rules.Backend{rules.NFT, rules.Legacy} {
		t.Run(string(b), func(t *testing.T) {
			rulestest.Contract(t, func(*testing.T) rulestest.Host {
				f := rulestest.New(rules.Options{Owned: rulestest.Owned, Backend: b})
				return rulestest.Host{Client: f, Load: f.Load, Save: f.Save}
			})
		})
	}
}
