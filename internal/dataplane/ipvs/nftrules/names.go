package nftrules

import (
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/ownership"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// hook is a chain of the kernel in iptables.
type hook struct{ table, name string }

// bases are the base chains that replace the built-in chains of the kernel.
var bases = map[hook]nft.Base{
	{"mangle", "PREROUTING"}: nft.ManglePrerouting,
	{"mangle", "FORWARD"}:    nft.MangleForward,
	{"mangle", "OUTPUT"}:     nft.MangleOutput,
	{"nat", "PREROUTING"}:    nft.NATPrerouting,
	{"nat", "OUTPUT"}:        nft.NATOutput,
	{"nat", "POSTROUTING"}:   nft.NATPostrouting,
	{"filter", "INPUT"}:      nft.FilterInput,
	{"filter", "FORWARD"}:    nft.FilterForward,
	{"filter", "OUTPUT"}:     nft.FilterOutput,
}

// families are those of nftables by ours.
var families = map[netkey.Family]nft.Family{netkey.IPv4: nft.IPv4, netkey.IPv6: nft.IPv6}

// ours returns our family of one of nftables.
func ours(f nft.Family) netkey.Family {
	if f == nft.IPv6 {
		return netkey.IPv6
	}
	return netkey.IPv4
}

// between separates the table from the chain in a name. No table of iptables has it in its name.
const between = "-"

// named returns the key of a chain of a table of iptables.
func named(f netkey.Family, table, chain string) nft.Key {
	return nft.Key{Family: families[f], Name: table + between + chain}
}

func chainKey(k rules.ChainKey) nft.Key { return named(k.Family, k.Table, k.Name) }

func hookKey(k rules.JumpKey) nft.Key { return named(k.Family, k.Table, k.Hook) }

// parseName takes the name of a chain apart; false where no table is in it.
func parseName(k nft.Key) (rules.ChainKey, bool) {
	table, name, ok := strings.Cut(k.Name, between)
	return rules.ChainKey{Family: ours(k.Family), Table: table, Name: name}, ok
}

// purpose has the known facts about one of our sets by its name.
type purpose struct {
	family nft.Family
	header ipset.Set
	set    nft.Set
	// protocol is that of the packets which a set of ports is for, where rules do not name it.
	protocol uint8
}

// shapes are those of nftables for the types of ipset.
var shapes = map[ipset.Type]nft.Shape{
	ipset.HashIP:        nft.Addr,
	ipset.HashIPPort:    nft.AddrPort,
	ipset.HashIPPortIP:  nft.AddrPortAddr,
	ipset.HashIPPortNet: nft.AddrPortNet,
	ipset.BitmapPort:    nft.Port,
}

// purposes are our sets, by name.
var purposes = func() map[string]purpose {
	out := map[string]purpose{}
	for _, s := range sets.All() {
		p := purpose{family: families[ownership.SetFamily(s.Name)], header: s, set: lowerSet(s)}
		if s.Name == sets.Name(ours(p.family), sets.HealthCheck) {
			p.protocol = nft.TCP
		}
		out[s.Name] = p
	}
	return out
}()

// setKey returns the key of a set of ours; false where the name is none of them.
func setKey(name string) (nft.Key, bool) {
	p, ok := purposes[name]
	return nft.Key{Family: p.family, Name: name}, ok
}
