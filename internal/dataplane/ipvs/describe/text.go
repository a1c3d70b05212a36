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
		rows := addressRows{
			addrs: maps.Collect(d.of.Addresses.Addresses.AllDesired()), routes: maps.Collect(d.of.Addresses.Routes.AllDesired()),
			detached: maps.Collect(d.of.Addresses.Detached.AllDesired()), announced: maps.Collect(d.of.Announced.Rows.AllDesired()),
		}
		return func(w io.Writer) error { return rows.write(w, d.of.Config.Masquerade) }, nil
	}
	return nil, fmt.Errorf("no rows named %q: use one of %s", kind, strings.Join(Kinds(), ", "))
}

// addressRows are bound addresses, routes, detached and announced addresses.
type addressRows struct {
	addrs     map[netip.Addr]struct{}
	routes    map[netip.Prefix]struct{}
	detached  map[netip.Addr]bool
	announced map[link.Announcement]struct{}
}

// write prints the rows.
func (r addressRows) write(w io.Writer, m netfilter.Masquerade) error {
	if err := link.WriteAddrs(w, r.addrs); err != nil {
		return err
	}
	if err := link.WriteRoutes(w, maps.Keys(r.routes)); err != nil {
		return err
	}
	if err := link.WriteDetached(w, link.DetachMark(m.Bit), maps.Keys(r.detached), func(a netip.Addr) bool { _, bound := r.addrs[a]; return bound }); err != nil {
		return err
	}
	return link.WriteAnnouncements(w, maps.Keys(r.announced))
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
		return addressRows{
			addrs: maps.Collect(d.of.Addresses.Addresses.Actual()), routes: maps.Collect(d.of.Addresses.Routes.Actual()),
			detached: maps.Collect(d.of.Addresses.Detached.Actual()), announced: maps.Collect(d.of.Announced.Rows.Actual()),
		}.write(w, d.of.Config.Masquerade)
	}
	return fmt.Errorf("no rows named %q: use one of %s", kind, strings.Join(Kinds(), ", "))
}
