package nftrules_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/nftrules"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft/nfttest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// contract has what ipvs mode relies on, for a kernel of nftables: the fake and a real one.
var contract = map[string]func(*testing.T, nftrules.Kernel){
	"every rule of the mode reads as it was written": checkRules,
	"detours":                                  checkDetours,
	"jumps keep their order":                   checkJumps,
	"entries of every type":                    checkEntries,
	"networks inside of others":                checkRanges,
	"a set of another type is replaced":        checkReplace,
	"a rule without a counterpart fails alone": checkUnsupported,
	"what is deleted leaves no table":          checkEmpty,
	"a table of another version stays until its successor is complete": checkOtherVersion,
}

func TestFakeKeepsContract(t *testing.T) {
	for name, check := range contract {
		t.Run(name, func(t *testing.T) { check(t, nfttest.New()) })
	}
}

// allSets makes the sets of the mode.
func allSets(t *testing.T, kernel nftrules.Kernel) {
	t.Helper()
	must(t, nftrules.New(kernel).Sets().CreateAll(t.Context(), sets.All()...)...)
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// desired are the chains and jumps that a mode of this configuration wants.
func desired(t *testing.T, c ipvs.Config) (chains []rules.ChainChange, jumps []rules.JumpChange) {
	t.Helper()
	var b strings.Builder
	mode := ipvs.New(zap.NewNop(), c, ipvs.Deps{})
	mode.SetHost(host())
	must(t, mode.WriteRows(&b, "rules"))
	for i, part := range strings.Split(b.String(), "# ip")[1:] {
		family := []rules.Family{rules.IPv4, rules.IPv6}[i]
		_, text, _ := strings.Cut(part, "\n")
		tables, err := rules.ParseSave(strings.NewReader(text))
		must(t, err)
		for _, table := range tables {
			for _, c := range table.Chains {
				lines := make([]string, len(c.Rules))
				for i, r := range c.Rules {
					lines[i] = rules.Canonical(family, r)
				}
				if !c.Builtin() {
					key := rules.ChainKey{Family: family, Table: table.Name, Name: c.Name}
					chains = append(chains, rules.ChainChange{Op: rules.Add, Key: key, Chain: rules.Chain{Rules: strings.Join(lines, "\n")}})
					continue
				}
				for _, line := range slices.Backward(lines) {
					args, target, _ := strings.Cut(line, " -j ")
					key := rules.JumpKey{Family: family, Table: table.Name, Hook: c.Name, Target: target}
					jumps = append(jumps, rules.JumpChange{Op: rules.Add, Key: key, Jump: rules.Jump{Args: args}})
				}
			}
		}
	}
	if len(chains) < 30 || len(jumps) < 20 {
		t.Fatalf("%d chains and %d jumps are too few for both families:\n%s", len(chains), len(jumps), &b)
	}
	return chains, jumps
}

func host() model.Host {
	return model.Host{Node: model.Node{PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:1::/64")}}}
}

// configs are the settings that rules depend on.
func configs() map[string]ipvs.Config {
	both := model.Families()
	base := func(change func(*ipvs.Config)) ipvs.Config {
		c := ipvs.Config{Node: "node-a", Families: both[:], Masquerade: netfilter.Masquerade{Bit: 14}}
		change(&c)
		return c
	}
	never := func(model.Family) bool { return false }
	cidrs := []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:1::/48")}
	ranges := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00:2::/112")}
	return map[string]ipvs.Config{
		"plain":          base(func(*ipvs.Config) {}),
		"masquerade all": base(func(c *ipvs.Config) { c.MasqueradeAll = true }),
		"mark and ports": base(func(c *ipvs.Config) {
			c.Masquerade = netfilter.Masquerade{Bit: 31, RandomFully: never, NodePorts: netfilter.PortRange{First: 30000, Last: 32767}}
		}),
		"cluster CIDR": base(func(c *ipvs.Config) {
			c.Local = netfilter.LocalPods{Mode: netfilter.LocalClusterCIDR, ClusterCIDRs: cidrs}
		}),
		"node CIDR": base(func(c *ipvs.Config) { c.Local = netfilter.LocalPods{Mode: netfilter.LocalNodeCIDR} }),
		"bridge":    base(func(c *ipvs.Config) { c.Local = netfilter.LocalPods{Mode: netfilter.LocalBridge, Interface: "cni0"} }),
		"prefix of a name": base(func(c *ipvs.Config) {
			c.Local = netfilter.LocalPods{Mode: netfilter.LocalInterfaceName, Interface: "veth"}
		}),
		"routes for ranges": base(func(c *ipvs.Config) { c.Binding, c.ServiceCIDRs = "route", ranges }),
	}
}

// list reads with a backend that has no memory.
func list(t *testing.T, kernel nftrules.Kernel) (map[rules.ChainKey]rules.Chain, map[rules.JumpKey]rules.Jump) {
	t.Helper()
	chains, jumps, err := nftrules.New(kernel).Rules().List(t.Context())
	must(t, err)
	return chains, jumps
}

func checkRules(t *testing.T, kernel nftrules.Kernel) {
	allSets(t, kernel)
	for name, c := range configs() {
		chains, jumps := desired(t, c)
		r := nftrules.New(kernel).Rules()
		must(t, r.WriteChains(t.Context(), chains)...)
		must(t, r.WriteJumps(t.Context(), jumps)...)
		haveChains, haveJumps := list(t, kernel)
		if len(haveChains) != len(chains) || len(haveJumps) != len(jumps) {
			t.Errorf("%s: %d chains and %d jumps, want %d and %d", name, len(haveChains), len(haveJumps), len(chains), len(jumps))
		}
		for _, c := range chains {
			if got := haveChains[c.Key]; got != c.Chain {
				t.Errorf("%s: %s\ngot\n%s\nwant\n%s", name, c.Key, got.Rules, c.Chain.Rules)
			}
		}
		for _, j := range jumps {
			if got, there := haveJumps[j.Key]; !there || got != j.Jump {
				t.Errorf("%s: %s: got %q, want %q", name, j.Key, got.Args, j.Jump.Args)
			}
		}
	}
}

var detourChain = rules.ChainKey{Family: rules.IPv4, Table: "nat", Name: "KUBE-DETOUR-TO"}

const (
	detourA = "-d 192.0.2.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.96.0.1:80"
	detourB = "-d 192.0.2.1/32 -p udp -m udp --dport 80 -j DNAT --to-destination 10.96.0.1:8080"
	detourC = "-d 192.0.2.1/32 -p tcp -m tcp --dport 443 -j DNAT --to-destination 10.96.0.2:443"
)

func checkDetours(t *testing.T, kernel nftrules.Kernel) {
	r := nftrules.New(kernel).Rules()
	for _, want := range []string{"", detourA, detourA + "\n" + detourB + "\n" + detourC, detourC, ""} {
		must(t, r.WriteChains(t.Context(), []rules.ChainChange{{Op: rules.Update, Key: detourChain, Chain: rules.Chain{Rules: want}}})...)
		chains, _ := list(t, kernel)
		if got, there := chains[detourChain]; !there || got.Rules != want {
			t.Errorf("got\n%s\nwant\n%s", got.Rules, want)
		}
	}
	mixed := rules.Chain{Rules: detourA + "\n-j ACCEPT"}
	err := errors.Join(r.WriteChains(t.Context(), []rules.ChainChange{{Op: rules.Update, Key: detourChain, Chain: mixed}})...)
	if !errors.Is(err, rules.ErrUnsupported) {
		t.Errorf("detours and other rules in one chain: %v", err)
	}
}

// order are the targets of the jumps of a hook as packets meet them.
func order(t *testing.T, kernel nftrules.Kernel) string {
	t.Helper()
	found, err := kernel.Read(t.Context())
	must(t, err)
	var out []string
	for k, c := range found.Chains {
		if k.Name != "filter-INPUT" {
			continue
		}
		for line := range strings.SplitSeq(c.Text(k.Family), "\n") {
			if _, target, ok := strings.Cut(line, "jump filter-KUBE-"); ok {
				out = append(out, strings.Fields(target)[0])
			}
		}
	}
	return strings.Join(out, " ")
}

func checkJumps(t *testing.T, kernel nftrules.Kernel) {
	r := nftrules.New(kernel).Rules()
	key := func(target string) rules.JumpKey {
		return rules.JumpKey{Family: rules.IPv4, Table: "filter", Hook: "INPUT", Target: "KUBE-" + target}
	}
	var chains []rules.ChainChange
	for _, name := range []string{"A", "B", "C", "Z"} {
		chains = append(chains, rules.ChainChange{Op: rules.Add, Key: rules.ChainKey{Family: rules.IPv4, Table: "filter", Name: "KUBE-" + name}})
	}
	must(t, r.WriteChains(t.Context(), chains)...)
	add := func(target string, last bool, behind ...string) rules.JumpChange {
		return rules.JumpChange{Op: rules.Add, Key: key(target), Jump: rules.Jump{Args: "-m comment --comment why"}, Last: last, Behind: behind}
	}
	for _, step := range []struct {
		changes []rules.JumpChange
		want    string
	}{
		{[]rules.JumpChange{add("A", false, "KUBE-C", "KUBE-B"), add("B", false, "KUBE-C"), add("Z", true)}, "B A Z"},
		{[]rules.JumpChange{add("C", false)}, "C B A Z"},
		{[]rules.JumpChange{{Op: rules.Delete, Key: key("B"), Exact: true, Jump: rules.Jump{Args: "-p tcp"}}}, "C B A Z"},
		{[]rules.JumpChange{{Op: rules.Delete, Key: key("B")}, {Op: rules.Delete, Key: key("Z")}}, "C A"},
		{[]rules.JumpChange{add("Z", true), add("B", false, "KUBE-C")}, "C B A Z"},
		{[]rules.JumpChange{{Op: rules.Update, Key: key("A"), Jump: rules.Jump{Args: "-p tcp"}}}, "C B A Z"},
	} {
		must(t, r.WriteJumps(t.Context(), step.changes)...)
		if got := order(t, kernel); got != step.want {
			t.Errorf("jumps %q, want %q", got, step.want)
		}
	}
	if _, jumps := list(t, kernel); jumps[key("A")].Args != "-p tcp" || jumps[key("B")].Args != "-m comment --comment why" {
		t.Errorf("jumps %v", jumps)
	}
	nowhere := rules.JumpKey{Family: rules.IPv4, Table: "raw", Hook: "PREROUTING", Target: "KUBE-A"}
	if err := errors.Join(r.WriteJumps(t.Context(), []rules.JumpChange{{Op: rules.Add, Key: nowhere}})...); !errors.Is(err, rules.ErrUnsupported) {
		t.Errorf("a jump of a hook without a base chain: %v", err)
	}
}

func entry(t *testing.T, s ipset.Set, text string) ipset.Entry {
	t.Helper()
	e, err := ipset.ParseEntry(s.Type, text)
	must(t, err)
	return e
}

// setNamed is one of the mode's sets.
func setNamed(t *testing.T, name string) ipset.Set {
	t.Helper()
	for _, s := range sets.All() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no set %s", name)
	return ipset.Set{}
}

// contents are the entries of a set as a backend without memory reads them, sorted.
func contents(t *testing.T, from nftrules.Sets, name string) string {
	t.Helper()
	_, list, err := from.List(t.Context(), name)
	must(t, err)
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = e.String()
	}
	return strings.Join(out, " ")
}

func checkEntries(t *testing.T, kernel nftrules.Kernel) {
	s := nftrules.New(kernel).Sets()
	must(t, s.CreateAll(t.Context(), sets.All()...)...)
	must(t, s.CreateAll(t.Context(), sets.All()...)...) // again
	headers, err := s.ListSets(t.Context())
	must(t, err)
	if len(headers) != len(sets.All()) {
		t.Errorf("%d sets, want %d", len(headers), len(sets.All()))
	}
	for _, h := range headers {
		if !setNamed(t, h.Name).Compatible(h) {
			t.Errorf("header %+v, want %+v", h, setNamed(t, h.Name))
		}
	}
	for name, text := range map[string]string{
		sets.ClusterIP: "10.96.0.1,tcp:80 10.96.0.1,udp:53 10.96.0.1,sctp:7", "KUBE-6-CLUSTER-IP": "fd00::1,tcp:80",
		sets.IPVSIPs: "10.96.0.1 10.96.0.2", sets.LoopBack: "10.244.0.1,tcp:80,10.244.0.1",
		sets.NodePortTCP: "30000 30001", "KUBE-6-NODE-PORT-TCP": "30000", sets.SourceCIDR: "192.0.2.1,tcp:80,10.0.0.0/8 192.0.2.1,tcp:80,198.51.100.7",
	} {
		set := setNamed(t, name)
		var changes []ipset.Change
		for one := range strings.FieldsSeq(text) {
			changes = append(changes, ipset.AddEntry(entry(t, set, one)))
		}
		if errs := s.Write(t.Context(), set, append(changes, changes...)); errs != nil {
			t.Errorf("%s: %v", name, errs)
		}
		if got := contents(t, nftrules.New(kernel).Sets(), name); got != text {
			t.Errorf("%s: %q, want %q", name, got, text)
		}
		if got := contents(t, s, name); got != text {
			t.Errorf("%s: %q, want %q", name, got, text)
		}
		must(t, s.Write(t.Context(), set, []ipset.Change{ipset.DeleteEntry(changes[0].Entry), ipset.DeleteEntry(changes[0].Entry)})...)
		_, rest, _ := strings.Cut(text, " ")
		if got := contents(t, s, name); got != rest {
			t.Errorf("%s: %q, want %q", name, got, rest)
		}
	}
	if _, _, err := s.List(t.Context(), sets.Hold); err != nil {
		t.Error(err)
	}
	if errs := s.Write(t.Context(), setNamed(t, sets.Hold), []ipset.Change{ipset.AddEntry(ipset.IPPort(netip.MustParseAddr("10.96.0.9"), ipset.TCP, 1))}); errs != nil {
		t.Error(errs)
	}
	must(t, s.Destroy(t.Context(), sets.ClusterIP))
	if _, _, err := s.List(t.Context(), sets.ClusterIP); !errors.Is(err, ipset.ErrNotExist) {
		t.Errorf("a set that does not exist: %v", err)
	}
	lost := s.Write(t.Context(), setNamed(t, sets.ClusterIP), []ipset.Change{ipset.AddEntry(ipset.IPPort(netip.MustParseAddr("10.96.0.1"), ipset.TCP, 1))})
	if len(lost) != 1 || !errors.Is(lost[0], ipset.ErrNotExist) {
		t.Errorf("an entry of a set that does not exist: %v", lost)
	}
}

func checkRanges(t *testing.T, kernel nftrules.Kernel) {
	s, set := nftrules.New(kernel).Sets(), setNamed(t, sets.SourceCIDR)
	must(t, s.CreateAll(t.Context(), set)...)
	change := func(op ipset.Op, list ...string) ipset.Batch {
		b := ipset.Batch{Set: set}
		for _, n := range list {
			b.Changes = append(b.Changes, ipset.Change{Op: op, Entry: entry(t, set, "192.0.2.1,tcp:80,"+n)})
		}
		return b
	}
	for _, step := range []struct {
		batch          ipset.Batch
		counted, known string // the elements of the kernel, and those that count as in place
	}{
		{change(ipset.OpAdd, "10.1.0.0/16", "10.0.0.0/8", "10.1.2.0/24"), "10.0.0.0/8", "10.0.0.0/8 10.1.0.0/16 10.1.2.0/24"},
		{change(ipset.OpDelete, "10.0.0.0/8"), "10.1.0.0/16", "10.1.0.0/16 10.1.2.0/24"},
		{change(ipset.OpAdd, "10.0.0.0/8", "172.16.0.0/12"), "10.0.0.0/8 172.16.0.0/12", "10.0.0.0/8 10.1.0.0/16 10.1.2.0/24 172.16.0.0/12"},
		{change(ipset.OpDelete, "10.1.0.0/16", "10.0.0.0/8"), "10.1.2.0/24 172.16.0.0/12", "10.1.2.0/24 172.16.0.0/12"},
		{change(ipset.OpDelete, "10.1.2.0/24", "172.16.0.0/12"), "", ""},
	} {
		must(t, s.WriteAll(t.Context(), step.batch)[0]...)
		if got := networks(contents(t, nftrules.New(kernel).Sets(), set.Name)); got != step.counted {
			t.Errorf("the kernel has %q, want %q", got, step.counted)
		}
		if got := networks(contents(t, s, set.Name)); got != step.known {
			t.Errorf("in place %q, want %q", got, step.known)
		}
	}
	// A process without memory adds what it wants to what it finds.
	must(t, s.WriteAll(t.Context(), change(ipset.OpAdd, "10.0.0.0/8"))[0]...)
	next := nftrules.New(kernel).Sets()
	must(t, next.WriteAll(t.Context(), change(ipset.OpAdd, "10.1.0.0/16"))[0]...)
	if got := networks(contents(t, next, set.Name)); got != "10.0.0.0/8 10.1.0.0/16" {
		t.Errorf("in place %q", got)
	}
	must(t, next.WriteAll(t.Context(), change(ipset.OpDelete, "10.0.0.0/8"))[0]...)
	if got := networks(contents(t, nftrules.New(kernel).Sets(), set.Name)); got != "10.1.0.0/16" {
		t.Errorf("the kernel has %q", got)
	}
}

// networks leaves out the address and port of entries.
func networks(text string) string { return strings.ReplaceAll(text, "192.0.2.1,tcp:80,", "") }

func checkReplace(t *testing.T, kernel nftrules.Kernel) {
	s, set := nftrules.New(kernel).Sets(), setNamed(t, sets.ClusterIP)
	wrong := set
	wrong.Type = ipset.HashIP
	must(t, s.CreateAll(t.Context(), wrong)...)
	headers, err := s.ListSets(t.Context())
	must(t, err)
	if len(headers) != 1 || headers[0] != wrong {
		t.Errorf("headers %+v, want %+v", headers, wrong)
	}
	if errs := s.CreateAll(t.Context(), set); len(errs) != 1 || !errors.Is(errs[0], ipset.ErrExist) {
		t.Errorf("a set over one of another type: %v", errs)
	}
	for _, text := range []string{"10.96.0.1,tcp:80", "10.96.0.2,tcp:80"} { // over another type, and over its own
		must(t, s.Replace(t.Context(), set, []ipset.Entry{entry(t, set, text)}))
		if got := contents(t, s, set.Name); got != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
	// A rule refers to the set.
	r := nftrules.New(kernel).Rules()
	chain := rules.ChainKey{Family: rules.IPv4, Table: "filter", Name: "KUBE-A"}
	must(t, r.WriteChains(t.Context(), []rules.ChainChange{{Op: rules.Add, Key: chain, Chain: rules.Chain{Rules: "-m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT"}}})...)
	if err := s.Destroy(t.Context(), set.Name); !errors.Is(err, ipset.ErrBusy) {
		t.Errorf("destroy a set that a rule refers to: %v", err)
	}
	if err := s.Replace(t.Context(), wrong, nil); !errors.Is(err, ipset.ErrBusy) {
		t.Errorf("replace a set that a rule refers to by one of another type: %v", err)
	}
}

func checkUnsupported(t *testing.T, kernel nftrules.Kernel) {
	allSets(t, kernel)
	r := nftrules.New(kernel).Rules()
	good := rules.ChainKey{Family: rules.IPv4, Table: "filter", Name: "KUBE-GOOD"}
	for name, text := range map[string]string{
		"unknown condition":              "-m ipvs --ipvs -j ACCEPT",
		"unknown target":                 "-j NFQUEUE --queue-num 3",
		"a set of another program":       "-m set --match-set STRANGER dst -j ACCEPT",
		"a set of the other family":      "-m set --match-set KUBE-6-CLUSTER-IP dst,dst -j ACCEPT",
		"too few dimensions":             "-m set --match-set KUBE-CLUSTER-IP dst -j ACCEPT",
		"a set of ports, any protocol":   "-m set --match-set KUBE-NODE-PORT-TCP dst -j ACCEPT",
		"states and translations":        "-m conntrack --ctstate NEW,DNAT -j ACCEPT",
		"a comment where it does not go": `-m conntrack --ctstate NEW -m comment --comment a -j ACCEPT`,
		"a comment that is too long":     "-m comment --comment " + strings.Repeat("a", 200) + " -j ACCEPT",
		"no target":                      "-p tcp",
		"a port":                         "-p tcp -m tcp --dport 80 -j ACCEPT",
		"a detour of a whole network":    "-d 192.0.2.0/24 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.96.0.1:80",
	} {
		bad := rules.ChainKey{Family: rules.IPv4, Table: "nat", Name: "KUBE-BAD"}
		errs := r.WriteChains(t.Context(), []rules.ChainChange{
			{Op: rules.Add, Key: bad, Chain: rules.Chain{Rules: rules.Canonical(rules.IPv4, text)}},
			{Op: rules.Add, Key: good, Chain: rules.Chain{Rules: "-j ACCEPT"}},
		})
		if len(errs) != 2 || !errors.Is(errs[0], rules.ErrUnsupported) || errs[1] != nil {
			t.Errorf("%s: %v", name, errs)
		}
		chains, _ := list(t, kernel)
		if _, there := chains[bad]; there || chains[good].Rules != "-j ACCEPT" {
			t.Errorf("%s: %v", name, chains)
		}
	}
}

func checkEmpty(t *testing.T, kernel nftrules.Kernel) {
	allSets(t, kernel)
	chains, jumps := desired(t, configs()["plain"])
	b := nftrules.New(kernel)
	must(t, b.Rules().WriteChains(t.Context(), chains)...)
	must(t, b.Rules().WriteJumps(t.Context(), jumps)...)
	for i := range chains {
		chains[i].Op = rules.Delete
	}
	for i := range jumps {
		jumps[i].Op = rules.Delete
	}
	must(t, b.Rules().WriteJumps(t.Context(), jumps)...)
	must(t, b.Rules().WriteChains(t.Context(), chains)...)
	if there, err := nftrules.Exists(t.Context(), kernel); err != nil || !there {
		t.Errorf("sets, but no tables: %t, %v", there, err)
	}
	for _, s := range sets.All() {
		must(t, b.Sets().Destroy(t.Context(), s.Name))
	}
	if there, err := nftrules.Exists(t.Context(), kernel); err != nil || there {
		t.Errorf("tables without anything are left: %t, %v", there, err)
	}
	allSets(t, kernel)
	must(t, nftrules.Remove(context.Background(), kernel))
	if there, err := nftrules.Exists(t.Context(), kernel); err != nil || there {
		t.Errorf("tables are left: %t, %v", there, err)
	}
}
