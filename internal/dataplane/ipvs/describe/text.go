package describe

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/chains"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// Kinds are the kinds of rows that WriteRows prints, in the order in which an operator reads them.
func Kinds() []string { return []string{"servers", "sets", "rules", "addresses"} }

// WriteRows prints the desired rows in the text of the operator's own tool: ipvsadm -Sn, ipset save,
// iptables-save, or ip addr add and ip route add commands.
func (d *Describer) WriteRows(w io.Writer, kind string) error {
	d.of.Addresses.OnPass()
	d.of.Chains.WantDetours(func(k model.FrontendKey) bool { _, wanted := d.of.Frontends.Get(k); return wanted })
	write, err := d.Snapshot(kind)
	if err != nil {
		return err
	}
	return write(w)
}

// Snapshot implements dataplane.Explainer.
func (d *Describer) Snapshot(kind string) (func(io.Writer) error, error) {
	switch kind {
	case "servers":
		servers, destinations := maps.Collect(d.of.Servers.AllDesired()), maps.Collect(d.of.Destinations.AllDesired())
		return func(w io.Writer) error { return vserver.WriteSave(w, servers, destinations) }, nil
	case "sets":
		contents := d.wantedSets()
		return func(w io.Writer) error { return ipset.WriteSave(w, contents...) }, nil
	case "rules":
		rules, leads := maps.Collect(d.of.Chains.Chains.AllDesired()), maps.Collect(d.of.Chains.Jumps.AllDesired())
		return func(w io.Writer) error { return netfilter.WriteSave(w, rules, leads, chains.Jumps) }, nil
	case "addresses":
		addrs, routes, detached := maps.Collect(d.of.Addresses.Addresses.AllDesired()), maps.Collect(d.of.Addresses.Routes.AllDesired()), maps.Collect(d.of.Addresses.Detached.AllDesired())
		return func(w io.Writer) error { return writeAddresses(w, d.of.Config.Masquerade, addrs, routes, detached) }, nil
	}
	return nil, fmt.Errorf("no rows named %q: use one of %s", kind, strings.Join(Kinds(), ", "))
}

// writeAddresses prints bound addresses, routes and detached addresses.
func writeAddresses(w io.Writer, m netfilter.Masquerade, addrs map[netip.Addr]struct{}, routes map[netip.Prefix]struct{}, detached map[netip.Addr]bool) error {
	if err := link.WriteAddrs(w, addrs); err != nil {
		return err
	}
	if err := link.WriteRoutes(w, maps.Keys(routes)); err != nil {
		return err
	}
	return link.WriteDetached(w, link.DetachMark(m.Bit), maps.Keys(detached), func(a netip.Addr) bool { _, bound := addrs[a]; return bound })
}

// WriteFound prints our rows as Load found them in the kernel, in the text of WriteRows. A set that only
// grew has the header of the desired one.
func (d *Describer) WriteFound(_ context.Context, w io.Writer, kind string) error {
	switch kind {
	case "servers":
		return vserver.WriteSave(w, maps.Collect(d.of.Servers.Actual()), maps.Collect(d.of.Destinations.Actual()))
	case "sets":
		return ipset.WriteSave(w, d.foundSets()...)
	case "rules":
		return netfilter.WriteSave(w, maps.Collect(d.of.Chains.Chains.Actual()), maps.Collect(d.of.Chains.Jumps.Actual()), chains.Jumps)
	case "addresses":
		return writeAddresses(w, d.of.Config.Masquerade, maps.Collect(d.of.Addresses.Addresses.Actual()), maps.Collect(d.of.Addresses.Routes.Actual()), maps.Collect(d.of.Addresses.Detached.Actual()))
	}
	return fmt.Errorf("no rows named %q: use one of %s", kind, strings.Join(Kinds(), ", "))
}
