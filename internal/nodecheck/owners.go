package nodecheck

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/nftrules"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/ownership"
	"github.com/kube-ipvs/kube-ipvs/internal/diagnosis"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
	"github.com/kube-ipvs/kube-ipvs/internal/nodecheck/host"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// ipvsOwners are the virtual servers of a node, with the marks that say whose they are.
type ipvsOwners struct {
	servers   []vserver.ServerKey
	routes    []netip.Prefix // local as a whole, by a route of ours
	marks     ownership.Snapshot
	listeners []host.Listener
}

// foreign returns the servers that carry no mark of ours (package ownership), and that are not in a
// range that is local as a whole or excluded.
func (p ipvsOwners) foreign() []vserver.ServerKey {
	return slices.DeleteFunc(slices.Clone(p.servers), func(k vserver.ServerKey) bool {
		holds := func(r netip.Prefix) bool { return r.Contains(k.Addr) }
		return p.marks.Owns(k) || slices.ContainsFunc(p.routes, holds) || slices.ContainsFunc(p.marks.Excluded, holds)
	})
}

// collisions returns the servers on addresses of this machine whose port a socket has, too: IPVS
// takes the packets of the socket.
func (p ipvsOwners) collisions() []vserver.ServerKey {
	return slices.DeleteFunc(slices.Clone(p.servers), func(k vserver.ServerKey) bool {
		_, local := p.marks.Links[k.Addr]
		udp := k.Protocol == vserver.ProtocolUDP
		return !local || !udp && k.Protocol != vserver.ProtocolTCP || !slices.Contains(p.listeners, host.Listener{TCP: !udp, Port: k.Port})
	})
}

// ownerChecks returns the checks of whose the virtual servers are, and of sockets on their ports.
func ownerChecks(read func(context.Context) (ipvsOwners, error)) []diagnosis.Check {
	const fix = "run as root, in the network namespace of the host"
	return []diagnosis.Check{
		{Name: "virtual servers of others", Fix: fix, Run: func(ctx context.Context) error {
			p, err := read(ctx)
			if err != nil {
				return err
			}
			if list := p.foreign(); len(list) > 0 {
				return diagnosis.Remedied(diagnosis.Warning(fmt.Errorf("%d of %d do not belong to kube-ipvs: %s", len(list), len(p.servers), some(list))), foreignFix(list[0]))
			}
			return diagnosis.Note("none; %d in total", len(p.servers))
		}},
		{Name: "sockets on node ports", Fix: fix, Run: func(ctx context.Context) error {
			p, err := read(ctx)
			if err != nil {
				return err
			}
			if list := p.collisions(); len(list) > 0 {
				return diagnosis.Remedied(diagnosis.Warning(fmt.Errorf("a process listens on an address and port that IPVS handles, so it gets no packets: %s", some(list))),
					fmt.Sprintf("ss -lntup 'sport = :%d' shows the process; let it listen on another port, or give the Service another nodePort", list[0].Port))
			}
			return nil
		}},
	}
}

func foreignFix(k vserver.ServerKey) string {
	return fmt.Sprintf("ipvsadm -Ln shows them; if another program needs them, set --ipvs-exclude-cidrs=%s; otherwise delete them: %s",
		netip.PrefixFrom(k.Addr, k.Addr.BitLen()), deletion(k))
}

// deletion is the command that deletes a server.
func deletion(k vserver.ServerKey) string {
	option := map[netkey.Protocol]string{vserver.ProtocolTCP: "-t", vserver.ProtocolUDP: "-u", vserver.ProtocolSCTP: "--sctp-service"}[k.Protocol]
	return fmt.Sprintf("ipvsadm -D %s %s", option, netip.AddrPortFrom(k.Addr, k.Port))
}

// some names the first of many.
func some(list []vserver.ServerKey) string {
	const most = 3
	slices.SortFunc(list, vserver.CompareServers)
	names := make([]string, 0, most)
	for _, k := range list[:min(most, len(list))] {
		names = append(names, k.String())
	}
	if more := len(list) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// readOnce returns a function that reads the owners at its first call, and returns the same later.
func readOnce(log *zap.Logger, n *host.Node, c config.Config) func(context.Context) (ipvsOwners, error) {
	var p ipvsOwners
	var err error
	done := false
	return func(ctx context.Context) (ipvsOwners, error) {
		if !done {
			done = true
			p, err = readOwners(ctx, log, n, c)
		}
		return p, err
	}
}

func readOwners(ctx context.Context, log *zap.Logger, n *host.Node, c config.Config) (ipvsOwners, error) {
	var p ipvsOwners
	s, err := vserver.New(log, vserver.Options{})
	if errors.Is(err, vserver.ErrUnsupported) {
		return p, nil // there are no servers, and other checks say why
	}
	if err != nil {
		return p, err
	}
	defer s.Close()
	servers, err := s.ListServers(ctx)
	if err != nil {
		return p, err
	}
	for k := range servers {
		p.servers = append(p.servers, k)
	}
	if p.listeners, err = n.Listeners(); err != nil {
		return p, err
	}
	return p, p.readMarks(ctx, log, c)
}

func (p *ipvsOwners) readMarks(ctx context.Context, log *zap.Logger, c config.Config) error {
	l, err := link.New(log, link.Options{})
	if err != nil {
		return err
	}
	defer l.Close()
	routes, err := l.ListRoutes(ctx)
	if err != nil {
		return err
	}
	for r := range routes {
		p.routes = append(p.routes, r)
	}
	var sets ownership.Sets
	h, err := ipset.Open(ctx, ipset.Options{})
	switch {
	case err == nil:
		defer h.Close()
		sets = h
	case !errors.Is(err, ipset.ErrUnsupported):
		return err
	}
	if tables, err := nft.New(log, nft.Options{}); err == nil {
		defer tables.Close()
		if there, err := nftrules.Exists(ctx, tables); err != nil {
			return err
		} else if there {
			sets = nftrules.New(tables).Sets()
		}
	} else if !errors.Is(err, nft.ErrUnsupported) {
		return err
	}
	marks, err := ownership.Read(ctx, l, sets, c.ExcludeCIDRs)
	if err == nil {
		p.marks = *marks
	}
	return err
}
