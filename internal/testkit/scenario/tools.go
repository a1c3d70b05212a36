package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/nftrules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver"
	"github.com/kube-ipvs/kube-ipvs/internal/netkey"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// tool understands as much of the tools' language as scenarios need, so that one
// line of a file works on the fakes and on a kernel.
func (k *kernel) tool(args []string) error {
	tools := map[string]func([]string) error{
		"ipvsadm":   k.ipvsadm,
		"ipset":     k.ipset,
		"iptables":  func(a []string) error { return k.iptables(rules.IPv4, a) },
		"ip6tables": func(a []string) error { return k.iptables(rules.IPv6, a) },
		"ip":        k.ip,
		"sysctl":    k.sysctl,
	}
	run, ok := tools[args[0]]
	if !ok {
		return fmt.Errorf("kernel: no tool %q: use ipvsadm, ipset, iptables, ip6tables, ip or sysctl", args[0])
	}
	if err := run(args[1:]); err != nil {
		return fmt.Errorf("kernel %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

var errNotUnderstood = errors.New("the fakes do not understand this command")

var serverOps = map[string]vserver.Op{
	"-A": vserver.Add, "-E": vserver.Update, "-D": vserver.Delete,
	"-a": vserver.Add, "-e": vserver.Update, "-d": vserver.Delete,
}

// ipvsadm takes "-A|-E|-D -t|-u ADDR [-s NAME]" and "-a|-e|-d -t|-u ADDR -r ADDR
// [-m] [-w N]"; destinations are masqueraded as ours are.
func (k *kernel) ipvsadm(args []string) error {
	ctx := context.Background()
	if len(args) == 1 && args[0] == "-C" {
		found, err := k.servers.ListServers(ctx)
		for key := range found {
			err = errors.Join(append(k.servers.WriteServers(ctx, []vserver.ServerChange{{Op: vserver.Delete, Key: key}}), err)...)
		}
		return err
	}
	op, known := serverOps[args[0]]
	key, rest, err := parseServer(args[1:])
	if err != nil || !known {
		return errors.Join(errNotUnderstood, err)
	}
	if _, err := k.servers.GetServer(ctx, key); err != nil && args[0] != "-A" {
		return err // the package converges, the tool does not
	}
	if strings.ToUpper(args[0]) == args[0] {
		s := vserver.Server{Scheduler: "wlc"}
		if len(rest) == 2 && rest[0] == "-s" {
			s.Scheduler = rest[1]
		}
		return errors.Join(k.servers.WriteServers(ctx, []vserver.ServerChange{{Op: op, Key: key, Server: s}})...)
	}
	c, err := parseDestination(key, rest)
	if err != nil {
		return err
	}
	c.Op = op
	return errors.Join(k.servers.WriteDestinations(ctx, []vserver.DestinationChange{c})...)
}

func parseServer(args []string) (vserver.ServerKey, []string, error) {
	protocols := map[string]netkey.Protocol{"-t": vserver.ProtocolTCP, "-u": vserver.ProtocolUDP, "--sctp-service": vserver.ProtocolSCTP}
	if len(args) < 2 || protocols[args[0]] == 0 {
		return vserver.ServerKey{}, nil, errNotUnderstood
	}
	at, err := netip.ParseAddrPort(args[1])
	return vserver.ServerKey{Addr: at.Addr(), Port: at.Port(), Protocol: protocols[args[0]]}, args[2:], err
}

func parseDestination(server vserver.ServerKey, args []string) (vserver.DestinationChange, error) {
	c := vserver.DestinationChange{Key: vserver.DestinationKey{Server: server}, Destination: vserver.Destination{Weight: 1}}
	args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "-m" })
	for ; len(args) >= 2; args = args[2:] {
		switch args[0] {
		case "-r":
			at, err := netip.ParseAddrPort(args[1])
			if err != nil {
				return c, err
			}
			c.Key.Addr, c.Key.Port = at.Addr(), at.Port()
		case "-w":
			n, err := strconv.ParseUint(args[1], 10, 16)
			if err != nil {
				return c, err
			}
			c.Destination.Weight = uint16(n)
		default:
			return c, errNotUnderstood
		}
	}
	return c, nil
}

// setTool is what changes sets behind the agent's back.
type setTool interface {
	Create(ctx context.Context, s ipset.Set) error
	Flush(ctx context.Context, name string) error
	Destroy(ctx context.Context, name string) error
	List(ctx context.Context, name string) (ipset.Set, []ipset.Entry, error)
	Add(ctx context.Context, name string, list ...ipset.Entry) error
	Delete(ctx context.Context, name string, list ...ipset.Entry) error
}

func (k *kernel) setTool() setTool {
	if k.nft != nil {
		return nftSetTool{nftrules.New(k.nft).Sets()}
	}
	return k.sets
}

func (k *kernel) ipset(args []string) error { return setCommand(k.setTool(), args) }

// setCommand takes create and add lines as ipset save prints them, and del, flush,
// destroy.
func setCommand(sets setTool, args []string) error {
	ctx := context.Background()
	if len(args) < 2 {
		return errNotUnderstood
	}
	name := args[1]
	switch args[0] {
	case "create":
		contents, err := ipset.ParseSave(strings.NewReader(strings.Join(args, " ")))
		if err != nil {
			return err
		}
		return sets.Create(ctx, contents[0].Set)
	case "flush":
		return sets.Flush(ctx, name)
	case "destroy":
		return sets.Destroy(ctx, name)
	case "add", "del":
		set, _, err := sets.List(ctx, name)
		if err != nil {
			return err
		}
		entry, err := ipset.ParseEntry(set.Type, strings.Join(args[2:], " "))
		if err != nil {
			return err
		}
		if args[0] == "add" {
			return sets.Add(ctx, name, entry)
		}
		return sets.Delete(ctx, name, entry)
	}
	return errNotUnderstood
}

// sysctl takes "-w KEY=VALUE" of the one key that rules depend on.
func (k *kernel) sysctl(args []string) error {
	if len(args) != 2 || args[0] != "-w" {
		return errNotUnderstood
	}
	value, ok := strings.CutPrefix(args[1], "net.netfilter.nf_conntrack_tcp_be_liberal=")
	if !ok {
		return errNotUnderstood
	}
	k.liberal.Store(value != "0")
	return nil
}

// iptables takes "-t TABLE" with "-F [CHAIN]", "-N CHAIN", "-A CHAIN RULE...",
// "-D CHAIN RULE..." and "-X CHAIN"; -F alone empties the hooks too, of jumps to our
// chains at least.
func (k *kernel) iptables(f rules.Family, args []string) error {
	if k.nft != nil {
		return Tables{k.nft}.iptables(f, args)
	}
	if len(args) < 3 || args[0] != "-t" {
		return errNotUnderstood
	}
	table, verb, rest := args[1], args[2], args[3:]
	load := func(text string) error {
		return k.rules.change(func() error { return k.rules.Load(f, "*"+table+"\n"+text+"\nCOMMIT\n") })
	}
	switch {
	case verb == "-F" && len(rest) == 1:
		return k.flushChain(rules.ChainKey{Family: f, Table: table, Name: rest[0]})
	case verb == "-N" && len(rest) == 1:
		return load(":" + rest[0] + " - [0:0]")
	case verb == "-A" && len(rest) > 1:
		return load("-A " + strings.Join(quoted(rest), " "))
	case verb == "-D" && len(rest) > 1:
		chain := rules.ChainKey{Family: f, Table: table, Name: rest[0]}
		return k.rules.change(func() error { return k.rules.Unload(chain, strings.Join(quoted(rest[1:]), " ")) })
	case verb == "-X" && len(rest) == 1:
		gone := rules.ChainChange{Op: rules.Delete, Key: rules.ChainKey{Family: f, Table: table, Name: rest[0]}}
		return errors.Join(k.rules.WriteChains(context.Background(), []rules.ChainChange{gone})...)
	case verb == "-F" && len(rest) == 0:
		return k.flushTable(f, table)
	}
	return errNotUnderstood
}

// quoted puts words with spaces into quotes, as save text has them.
func quoted(words []string) []string {
	out := slices.Clone(words)
	for i, w := range out {
		if strings.ContainsAny(w, " \t") {
			out[i] = strconv.Quote(w)
		}
	}
	return out
}

// flushChain empties a chain; where there is none, the tool complains and nothing changes.
func (k *kernel) flushChain(key rules.ChainKey) error {
	err := k.rules.change(func() error { return k.rules.Flush(key) })
	if errors.Is(err, rules.ErrNotExist) {
		return nil
	}
	return err
}

func (k *kernel) flushTable(f rules.Family, table string) error {
	ctx := context.Background()
	chains, jumps, err := k.rules.List(ctx)
	if err != nil {
		return err
	}
	for key := range jumps {
		if key.Family == f && key.Table == table {
			err = errors.Join(append(k.rules.WriteJumps(ctx, []rules.JumpChange{{Op: rules.Delete, Key: key}}), err)...)
		}
	}
	for key := range chains {
		if key.Family == f && key.Table == table {
			err = errors.Join(k.flushChain(key), err)
		}
	}
	return err
}

// ip takes "addr add|del PREFIX dev kube-ipvs0", "link add|del kube-ipvs0", and
// "route add|del local PREFIX dev lo" with "proto 73" for a route of ours. It also takes "route del
// blackhole ADDRESS table N proto 73".
func (k *kernel) ip(args []string) error {
	if len(args) < 3 {
		return errNotUnderstood
	}
	switch strings.Join(args[:2], " ") {
	case "link add":
		_, err := k.links.Ensure(context.Background())
		return err
	case "link del":
		k.links.LoseLink()
		return nil
	}
	if args[0] == "route" {
		return k.ipRoute(args[1:])
	}
	prefix, err := netip.ParsePrefix(args[2])
	if err != nil {
		return err
	}
	switch strings.Join(args[:2], " ") {
	case "addr add":
		k.links.AddByHand(prefix.Addr())
		return nil
	case "addr del":
		k.links.LoseAddress(prefix.Addr())
		return nil
	}
	return errNotUnderstood
}

// loseAnnouncement deletes a route that announces an address.
func (k *kernel) loseAnnouncement(addr, table string) error {
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(table, 10, 32)
	k.links.LoseAnnouncement(link.Announcement{Table: uint32(n), Addr: a})
	return err
}

func (k *kernel) ipRoute(args []string) error {
	if len(args) == 7 && args[0] == "del" && args[1] == "blackhole" {
		return k.loseAnnouncement(args[2], args[4])
	}
	if len(args) < 5 || args[1] != "local" || args[3] != "dev" || args[4] != "lo" {
		return errNotUnderstood
	}
	prefix, err := netip.ParsePrefix(args[2])
	if err != nil {
		return err
	}
	ours := slices.Equal(args[5:], []string{"proto", strconv.Itoa(link.RouteProtocol)})
	switch {
	case args[0] == "add" && ours:
		return errors.Join(k.links.WriteRoutes(context.Background(), []link.RouteChange{{Op: link.Add, Prefix: prefix}})...)
	case args[0] == "add":
		k.links.AddRouteByHand(prefix)
	case args[0] == "del" && ours:
		k.links.LoseRoute(prefix)
	case args[0] == "del":
		k.links.RemoveRouteByHand(prefix)
	default:
		return errNotUnderstood
	}
	return nil
}
