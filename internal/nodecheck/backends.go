package nodecheck

import (
	"context"
	"fmt"

	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// backendCheck returns the check of rules in both backends of iptables.
func backendCheck(census func(context.Context) map[rules.Backend]int) diagnosis.Check {
	return diagnosis.Check{Name: "iptables backends", Fix: "install iptables", Run: func(ctx context.Context) error {
		count := census(ctx)
		nft, legacy := count[rules.NFT], count[rules.Legacy]
		if nft > 0 && legacy > 0 {
			return diagnosis.Remedied(diagnosis.Warning(fmt.Errorf("both iptables backends have rules, nft %d and legacy %d: each packet passes both, and each tool shows only its own", nft, legacy)),
				backendFix(nft, legacy))
		}
		return diagnosis.Note("rules: nft %d, legacy %d", nft, legacy)
	}}
}

// backendFix returns the remedy: remove the rules of the backend that has fewer.
func backendFix(nft, legacy int) string {
	fewer := "legacy"
	if nft < legacy {
		fewer = "nft"
	}
	return fmt.Sprintf("iptables-%[1]s-save shows the smaller number of rules; let the program that wrote them use the other backend (update-alternatives --config iptables), "+
		"then for each table of filter nat mangle raw: iptables-%[1]s -t $table -F && iptables-%[1]s -t $table -X; the same with ip6tables-%[1]s", fewer)
}
