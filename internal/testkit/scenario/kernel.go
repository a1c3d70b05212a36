package scenario

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/iptables"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/netfilter"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link/linktest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft/nfttest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules/rulestest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver/vservertest"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
	"github.com/kube-ipvs/kube-ipvs/ipset/ipsettest"
)

// kernel is the four fakes of one node.
type kernel struct {
	servers *vservertest.Fake
	sets    *ipsettest.Fake
	rules   *tiedRules
	links   *linktest.Fake
	// nft holds rules and sets in place of the two fakes above; nil where those do.
	nft *nfttest.Fake
	// liberal is net.netfilter.nf_conntrack_tcp_be_liberal.
	liberal atomic.Bool
	// claims is what an agent has kept for the next one: addresses of Nodes that Services claim.
	claims atomic.Pointer[map[netip.Addr]string]
	// failing is what the probes of API servers find.
	failing atomic.Pointer[map[netip.AddrPort]string]
}

// probed returns the endpoints of API servers that fail their probes.
func (k *kernel) probed() map[netip.AddrPort]string {
	if failing := k.failing.Load(); failing != nil {
		return *failing
	}
	return nil
}

func (k *kernel) remember(claims map[netip.Addr]string) { k.claims.Store(&claims) }

func (k *kernel) remembered() map[netip.Addr]string {
	if claims := k.claims.Load(); claims != nil {
		return *claims
	}
	return nil
}

func newKernel() *kernel {
	sets := ipsettest.New()
	return &kernel{
		servers: vservertest.NewFake(),
		sets:    sets,
		rules:   &tiedRules{Fake: rulestest.New(rules.Options{Owned: netfilter.Owned}), sets: sets},
		links:   linktest.New(),
	}
}

// rulesDeps are the dependencies of iptables mode for one process, behind its tap.
func (k *kernel) rulesDeps(t *faultProxy) iptables.Deps {
	return iptables.Deps{Rules: tappedRules{tappedModeRules{k.rules, t}, k.rules}}
}

// deps are those of ipvs mode.
func (k *kernel) deps(t *faultProxy) ipvs.Deps {
	if k.nft != nil {
		return k.nftDeps(t)
	}
	return ipvs.Deps{
		Servers: tappedServers{k.servers, t}, Sets: tappedSets{k.sets, t},
		Rules: tappedModeRules{k.rules, t}, Links: tappedLinks{k.links, t},
	}
}

// host is what the machine has, read behind the fault proxy's back.
func (k *kernel) host() (h model.Host, err error) {
	if h.Links, err = k.links.Local(context.Background()); err == nil {
		h.Gateways, err = k.links.Gateways(context.Background())
	}
	h.Failing = k.probed()
	return h, err
}

// holdsIPVS reports whether a device, a route or a set of ipvs mode exists.
func (k *kernel) holdsIPVS() bool {
	if _, err := k.links.List(context.Background()); err == nil {
		return true
	}
	if routes, err := k.links.ListRoutes(context.Background()); err != nil || len(routes) > 0 {
		return true
	}
	found, err := k.sets.ListSets(context.Background())
	return err != nil || slices.ContainsFunc(found, func(s ipset.Set) bool { return sets.Owned(s.Name) })
}

// setHost gives the machine addresses and takes others away, each with its event.
func (k *kernel) setHost(addrs []netip.Addr) error {
	have, err := k.links.Local(context.Background())
	if err != nil {
		return err
	}
	for _, a := range addrs {
		if _, there := have[a]; !there {
			k.links.AddElsewhere(a, "host0")
		}
		delete(have, a)
	}
	for a := range have {
		k.links.RemoveElsewhere(a)
	}
	return nil
}

// text prints one kind of rows as the tools do.
func (k *kernel) text(kind string) (string, error) {
	switch kind {
	case "servers":
		return k.servers.String(), nil
	case "sets", "rules":
		if k.nft != nil {
			return Tables{k.nft}.Text(kind)
		}
	}
	switch kind {
	case "sets":
		return k.sets.String(), nil
	case "rules":
		return k.rules.String(), nil
	case "addresses":
		return k.links.String(), nil
	case "link":
		if _, err := k.links.List(context.Background()); err != nil {
			return "", nil //nolint:nilerr // no such link is an answer
		}
		return "kube-ipvs0\n", nil
	}
	return "", nil // Normal refuses the kind
}

// tiedRules joins the fakes of rules and sets as the kernel does: a rule cannot refer to a missing
// set, and a set that a rule refers to stays.
type tiedRules struct {
	*rulestest.Fake
	sets *ipsettest.Fake
	mu   sync.Mutex
}

// WriteChains refuses rules without their sets and counts references.
func (r *tiedRules) WriteChains(ctx context.Context, changes []rules.ChainChange) []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.count()
	errs := make([]error, len(changes))
	var good []rules.ChainChange
	var at []int
	for i, c := range changes {
		if c.Op != rules.Delete {
			errs[i] = r.lacking(c.Chain.Rules)
		}
		if errs[i] == nil {
			good, at = append(good, c), append(at, i)
		}
	}
	for i, err := range r.Fake.WriteChains(ctx, good) {
		errs[at[i]] = err
	}
	return errs
}

// Write counts references: rules that refer to sets may go. None come, as the only
// mode that writes so has no sets.
func (r *tiedRules) Write(ctx context.Context, chains []rules.ChainChange, edits []rules.RuleChange) (chainErrs, ruleErrs []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.count()
	return r.Fake.Write(ctx, chains, edits)
}

// change is anything else that adds or removes rules.
func (r *tiedRules) change(do func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.count()
	return do()
}

var matchSet = regexp.MustCompile(`--match-set (\S+)`)

func (r *tiedRules) lacking(text string) error {
	have := r.sets.String()
	for _, m := range matchSet.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(have, "create "+m[1]+" ") {
			return fmt.Errorf("set %s: %w", m[1], rules.ErrNotExist)
		}
	}
	return nil
}

// count makes the sets know how many rules refer to them.
func (r *tiedRules) count() {
	want := map[string]int{}
	for _, m := range matchSet.FindAllStringSubmatch(r.String(), -1) {
		want[m[1]]++
	}
	infos, err := r.sets.Stat(context.Background())
	if err != nil {
		panic(err) // faults are the fault proxy's business, the fake itself has none
	}
	for _, i := range infos {
		if n := want[i.Set.Name] - int(i.References); n != 0 {
			r.sets.Refer(i.Set.Name, n)
		}
	}
}
