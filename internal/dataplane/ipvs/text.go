package ipvs

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// Kinds are what WriteRows can print, in the order in which one reads them.
func Kinds() []string { return []string{"servers", "sets", "rules", "addresses"} }

// WriteRows prints what is desired, in the text of the tool an operator would
// use: ipvsadm -Sn, ipset save, iptables-save, or ip addr add and ip route add commands.
func (m *Mode) WriteRows(w io.Writer, kind string) error {
	m.bind()
	m.wantDetours(func(k model.FrontendKey) bool { _, wanted := m.frontends.Get(k); return wanted })
	switch kind {
	case "servers":
		return vserver.WriteSave(w, maps.Collect(m.servers.AllDesired()), maps.Collect(m.destinations.AllDesired()))
	case "sets":
		return ipset.WriteSave(w, m.contents()...)
	case "rules":
		return rules.WriteSave(w, maps.Collect(m.chains.AllDesired()), maps.Collect(m.jumps.AllDesired()), compareInHook)
	case "addresses":
		if err := link.WriteAddrs(w, maps.Collect(m.addresses.AllDesired())); err != nil {
			return err
		}
		if err := link.WriteRoutes(w, maps.Keys(maps.Collect(m.routes.AllDesired()))); err != nil {
			return err
		}
		return link.WriteDetached(w, link.DetachMark(m.config.Masquerade.Bit), maps.Keys(maps.Collect(m.detached.AllDesired())))
	}
	return fmt.Errorf("no rows named %q: use one of %s", kind, strings.Join(Kinds(), ", "))
}

// contents are the desired sets with their desired entries.
func (m *Mode) contents() []ipset.Contents {
	byName := map[string]*ipset.Contents{}
	for name, set := range m.sets.AllDesired() {
		byName[name] = &ipset.Contents{Set: set}
	}
	for k := range m.members.AllDesired() {
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
