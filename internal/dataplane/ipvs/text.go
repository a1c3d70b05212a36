package ipvs

import (
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// Kinds are what WriteRows can print, in the order in which one reads them.
func Kinds() []string { return []string{"servers", "sets", "rules", "addresses"} }

// WriteRows prints what is desired, in the text of the tool an operator would
// use: ipvsadm -Sn, ipset save, iptables-save, or ip addr add and ip route add commands.
func (m *Mode) WriteRows(w io.Writer, kind string) error {
	m.addresses.OnPass()
	m.wantDetours(func(k model.FrontendKey) bool { _, wanted := m.frontends.Get(k); return wanted })
	write, err := m.Snapshot(kind)
	if err != nil {
		return err
	}
	return write(w)
}

// Snapshot implements dataplane.Explainer.
func (m *Mode) Snapshot(kind string) (func(io.Writer) error, error) {
	switch kind {
	case "servers":
		servers, destinations := maps.Collect(m.servers.AllDesired()), maps.Collect(m.destinations.AllDesired())
		return func(w io.Writer) error { return vserver.WriteSave(w, servers, destinations) }, nil
	case "sets":
		contents := m.contents()
		return func(w io.Writer) error { return ipset.WriteSave(w, contents...) }, nil
	case "rules":
		chains, leads := maps.Collect(m.chains.AllDesired()), maps.Collect(m.jumps.AllDesired())
		return func(w io.Writer) error { return netfilter.WriteSave(w, chains, leads, jumps) }, nil
	case "addresses":
		addrs, routes, detached := maps.Collect(m.addresses.Addresses.AllDesired()), maps.Collect(m.addresses.Routes.AllDesired()), maps.Collect(m.addresses.Detached.AllDesired())
		return func(w io.Writer) error { return m.config.writeAddresses(w, addrs, routes, detached) }, nil
	}
	return nil, fmt.Errorf("no rows named %q: use one of %s", kind, strings.Join(Kinds(), ", "))
}

// writeAddresses prints what makes addresses local.
func (c Config) writeAddresses(w io.Writer, addrs map[netip.Addr]struct{}, routes map[netip.Prefix]struct{}, detached map[netip.Addr]bool) error {
	if err := link.WriteAddrs(w, addrs); err != nil {
		return err
	}
	if err := link.WriteRoutes(w, maps.Keys(routes)); err != nil {
		return err
	}
	return link.WriteDetached(w, link.DetachMark(c.Masquerade.Bit), maps.Keys(detached), func(a netip.Addr) bool { _, bound := addrs[a]; return bound })
}

// contents are the desired sets with their desired entries.
func (m *Mode) contents() []ipset.Contents {
	byName := map[string]*ipset.Contents{}
	for name, set := range m.sets.Sets.AllDesired() {
		byName[name] = &ipset.Contents{Set: set}
	}
	for k := range m.sets.Members.AllDesired() {
		if c, ok := byName[k.Set]; ok {
			c.Entries = append(c.Entries, k.Entry)
		}
	}
	var out []ipset.Contents
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, *byName[name])
	}
	return out
}
