// Package firewalltest has a fake of the filters of a kernel.
package firewalltest

import (
	"context"
	"fmt"
	"hash/crc32"
	"strings"
	"sync"

	"github.com/kube-ipvs/kube-ipvs/internal/firewall"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nftables"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
)

// The result of Judge for the policy of a Kernel with Drop, for default/web at 10.96.0.10.
const (
	PolicyDrops = "packets to 1 Service (default/web) from pods are dropped: table inet filter, chain input: its policy is drop"
	PolicyFix   = "nft insert rule inet filter input ip daddr 10.96.0.10 accept"
)

// A Kernel has a table of nftables, "inet filter", and the chain INPUT of iptables-nft. While a
// reader runs, fields are changed by Change.
type Kernel struct {
	// Drop is the policy of the table of nftables.
	Drop bool
	// Input are the rules of INPUT, as iptables-save prints them.
	Input string
	// Failed is the error of the next readings.
	Failed error
	// Rewrites are changes that leave the same rules.
	Rewrites int
	// Reads counts the readings.
	Reads int

	mu sync.Mutex
}

// Change changes the kernel.
func (k *Kernel) Change(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
}

// Reader returns a reader of the kernel.
func (k *Kernel) Reader() firewall.Reader {
	return firewall.Reader{Generation: k.generation, NFT: k.filters, Save: k.save}
}

func (k *Kernel) generation(context.Context) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	sum := crc32.NewIEEE()
	fmt.Fprint(sum, k.Rewrites, k.Drop, k.Failed, k.Input)
	return uint64(sum.Sum32())
}

func (k *Kernel) filters(context.Context) ([]nftables.Filter, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.Reads++
	compat := nftables.Filter{Key: nftables.Key{Family: "ip", Name: "filter"}, Chains: map[string]nftables.Chain{"INPUT": {Hook: &nftables.Hook{Name: "input"}}}}
	host := nftables.Filter{Key: nftables.Key{Family: "inet", Name: "filter"}, Chains: map[string]nftables.Chain{"input": {Hook: &nftables.Hook{Name: "input", Drop: k.Drop}}}}
	return []nftables.Filter{host, compat}, k.Failed
}

func (k *Kernel) save(_ context.Context, nft map[rules.Family]bool) (out []rules.FilterTable) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if nft[rules.IPv4] {
		tables, err := rules.ParseSave(strings.NewReader("*filter\n:INPUT ACCEPT [0:0]\n" + k.Input + "COMMIT\n"))
		out = append(out, rules.FilterTable{Family: rules.IPv4, Backend: rules.NFT, Table: tables[0], Err: err})
	}
	return out
}
