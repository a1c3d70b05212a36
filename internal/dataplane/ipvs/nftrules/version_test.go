package nftrules_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap/zaptest"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/nftrules"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/link/linktest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft/nfttest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/vserver/vservertest"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
	"github.com/kube-ipvs/kube-ipvs/scheduler"
)

// relabelled is a kernel whose tables have the next version until they are replaced.
type relabelled struct {
	nftrules.Kernel
	replaced map[nft.Family]bool
	// after is called after each transaction.
	after func()
}

func (k *relabelled) Read(ctx context.Context) (nft.Ruleset, error) {
	r, err := k.Kernel.Read(ctx)
	for f, version := range r.Tables {
		if !k.replaced[f] {
			r.Tables[f] = version + 1
		}
	}
	return r, err
}

func (k *relabelled) Apply(ctx context.Context, p nft.Pass) nft.Outcome {
	out := k.Kernel.Apply(ctx, p)
	for _, c := range p.Tables {
		if c.Op == nft.Update && out.Tables == nil {
			k.replaced[c.Family] = true
		}
	}
	k.after()
	return out
}

// everything is the text of our tables.
func everything(t *testing.T, kernel nftrules.Kernel) string {
	t.Helper()
	r, err := kernel.Read(t.Context())
	must(t, err)
	return nfttest.Normalize(r.Text(func(k nft.Key) []nft.Element {
		_, list, err := kernel.Elements(t.Context(), k)
		must(t, err)
		return list
	}))
}

var oldChain = nft.Key{Family: nft.IPv4, Name: "nat-KUBE-OLD"}

// markOld adds a chain that only an agent of another version has.
func markOld(t *testing.T, kernel nftrules.Kernel) {
	t.Helper()
	must(t, kernel.Apply(t.Context(), nft.Pass{Chains: []nft.ChainChange{{Op: nft.Add, Key: oldChain}}}).Err())
}

// checkOtherVersion writes in the order of the mode, and looks at the tables between all transactions: they
// have everything, of the old version or of the new one.
func checkOtherVersion(t *testing.T, kernel nftrules.Kernel) {
	chains, jumps := desired(t, configs()["plain"])
	write := func(to nftrules.Kernel) {
		b := nftrules.New(to)
		must(t, b.Sets().CreateAll(t.Context(), sets.All()...)...)
		must(t, b.Sets().Write(t.Context(), setNamed(t, sets.ClusterIP), clusterIPs(3))...)
		must(t, b.Sets().Write(t.Context(), setNamed(t, sets.NodePortTCP), []ipset.Change{ipset.AddEntry(ipset.Port(30000))})...)
		must(t, b.Rules().WriteChains(t.Context(), chains)...)
		must(t, b.Rules().WriteChains(t.Context(), []rules.ChainChange{{Op: rules.Update, Key: detourChain, Chain: rules.Chain{Rules: detourA}}})...)
		must(t, b.Rules().WriteJumps(t.Context(), jumps)...)
	}
	write(kernel)
	fresh := everything(t, kernel)
	markOld(t, kernel)
	old := everything(t, kernel)
	other := &relabelled{Kernel: kernel, replaced: map[nft.Family]bool{}}
	transactions := 0
	other.after = func() {
		transactions++
		if now := everything(t, kernel); now != old && now != fresh {
			t.Errorf("after transaction %d packets meet\n%s", transactions, now)
		}
	}
	write(other)
	if now := everything(t, kernel); now != fresh || len(other.replaced) != 2 {
		t.Errorf("replaced %v, and packets meet\n%s", other.replaced, now)
	}
}

// otherVersion is a fake whose table of IPv4 has another version, and a backend that has not read it yet.
func otherVersion(t *testing.T, version uint32) (*nfttest.Fake, *nftrules.Backend) {
	t.Helper()
	fake, b := served(t)
	must(t, b.Sets().Write(t.Context(), setNamed(t, sets.ClusterIP), clusterIPs(1))...)
	markOld(t, fake)
	fake.SetVersion(nft.IPv4, version)
	return fake, nftrules.New(fake)
}

// wantOld fails if the table of another version is not as it was, or, where it is to be replaced, stays.
func wantOld(t *testing.T, fake *nfttest.Fake, stays bool) {
	t.Helper()
	r, err := fake.Read(t.Context())
	must(t, err)
	if _, there := r.Chains[oldChain]; there != stays || (r.Tables[nft.IPv4] == nft.Version) == stays {
		t.Errorf("version %d, chain of the old table %t, want it %t", r.Tables[nft.IPv4], there, stays)
	}
}

// Of a table of another version only sets are read, and of one without a version nothing. Rows show as soon as they are written,
// before the table is replaced.
func TestDraftIsRead(t *testing.T) {
	for version, entries := range map[uint32]string{0: "", nft.Version + 1: "10.96.0.0,tcp:80"} { // another program's or a dormant one, and a newer one
		fake, b := otherVersion(t, version)
		s := b.Sets()
		chains, _, err := b.Rules().List(t.Context())
		must(t, err)
		if _, there := chains[servicesChain]; there {
			t.Errorf("version %d: a chain of the table is read", version)
		}
		if _, list, err := s.List(t.Context(), sets.ClusterIP); version == 0 && !errors.Is(err, ipset.ErrNotExist) || version > 0 && fmt.Sprint(list) != "["+entries+"]" {
			t.Errorf("version %d: a set of the table: %v, %v", version, list, err)
		}
		must(t, s.CreateAll(t.Context(), sets.All()...)...)
		must(t, s.Write(t.Context(), setNamed(t, sets.ClusterIP), clusterIPs(3))...)
		must(t, s.Write(t.Context(), setNamed(t, sets.ClusterIP), []ipset.Change{ipset.DeleteEntry(clusterIPs(1)[0].Entry)})...)
		if got := contents(t, s, sets.ClusterIP); got != "10.96.0.1,tcp:80 10.96.0.2,tcp:80" || counted(t, s, sets.ClusterIP) != 2 {
			t.Errorf("version %d: entries %s, counted %d", version, got, counted(t, s, sets.ClusterIP))
		}
		must(t, s.Replace(t.Context(), setNamed(t, sets.ClusterIP), []ipset.Entry{clusterIPs(1)[0].Entry}))
		must(t, s.Destroy(t.Context(), sets.NodePortTCP))
		if _, _, err := s.List(t.Context(), sets.NodePortTCP); !errors.Is(err, ipset.ErrNotExist) {
			t.Errorf("version %d: a set that was destroyed: %v", version, err)
		}
		must(t, s.CreateAll(t.Context(), setNamed(t, sets.NodePortTCP))...)
		wantOld(t, fake, true)
		list, jumps := desired(t, configs()["plain"])
		must(t, b.Rules().WriteChains(t.Context(), list)...)
		must(t, b.Rules().WriteJumps(t.Context(), jumps)...)
		wantOld(t, fake, false)
		if got := contents(t, nftrules.New(fake).Sets(), sets.ClusterIP); got != "10.96.0.0,tcp:80" {
			t.Errorf("version %d: entries %s", version, got)
		}
	}
}

// A row that fails in a draft fails alone. The table is not replaced while rows are missing that a second
// try may bring, nor by a transaction that fails.
func TestDraftWithFailures(t *testing.T) {
	fake, b := otherVersion(t, nft.Version+1)
	chains, jumps := desired(t, configs()["plain"])
	s, r := b.Sets(), b.Rules()
	must(t, s.CreateAll(t.Context(), sets.All()...)...)
	write := func() []error { return s.Write(t.Context(), setNamed(t, sets.ClusterIP), clusterIPs(2)) }
	fake.FailCall(2, nft.ErrBusy) // between two questions for the generation
	if errs := write(); len(errs) != 2 || !errors.Is(errs[0], ipset.ErrBusy) {
		t.Errorf("a write that fails: %v", errs)
	}
	without := rules.ChainKey{Family: rules.IPv4, Table: "mangle", Name: "KUBE-A"}
	unknown := rules.ChainChange{Op: rules.Add, Key: without, Chain: rules.Chain{Rules: "-j ACCEPT"}}
	fake.RefuseRow("add chain ip kube-ipvs mangle-KUBE-A", nft.ErrUnsupported)
	errs := r.WriteChains(t.Context(), append([]rules.ChainChange{unknown}, chains...))
	if !errors.Is(errs[0], rules.ErrUnsupported) || errors.Join(errs[1:]...) != nil {
		t.Errorf("a chain that the kernel refuses: %v", errs)
	}
	fails := func(err error) bool { return errors.Is(err, nft.ErrBusy) }
	four := func(at int) bool { return jumps[at].Key.Family == rules.IPv4 }
	wantBusy := func(errs []error) {
		t.Helper()
		for i, err := range errs {
			if fails(err) != four(i) {
				t.Errorf("%s: %v", jumps[i].Key, err)
			}
		}
		wantOld(t, fake, true)
	}
	wantBusy(r.WriteJumps(t.Context(), jumps))
	must(t, write()...)
	fake.FailCall(3, nft.ErrBusy) // after the reading and the first generation
	wantBusy(r.WriteJumps(t.Context(), jumps))
	must(t, r.WriteJumps(t.Context(), jumps)...)
	wantOld(t, fake, false)
	if got := contents(t, nftrules.New(fake).Sets(), sets.ClusterIP); got != "10.96.0.0,tcp:80 10.96.0.1,tcp:80" {
		t.Errorf("entries %s", got)
	}
}

// plans are two Services, of which one has a NodePort.
func plans(t *testing.T) []model.ServicePlan {
	t.Helper()
	plan := func(name string, list ...model.Frontend) model.ServicePlan {
		p := model.ServicePlan{ID: model.ServiceID{Origin: model.FromFile, Namespace: "default", Name: name}}
		for _, f := range list {
			f.Service, f.Scheduler = p.ID, scheduler.MustParse("rr")
			f.Backends = []model.Backend{{Addr: netip.MustParseAddrPort("10.244.0.1:80"), Weight: model.DefaultWeight}}
			if f.Key.Addr.Is6() {
				f.Backends[0].Addr = netip.MustParseAddrPort("[fd00:244::1]:80")
			}
			p.Frontends = append(p.Frontends, f)
		}
		return p
	}
	at := func(addr string, kind model.Kind) model.Frontend {
		key := model.FrontendKey{Addr: netip.MustParseAddr(addr), Port: 80, Protocol: model.TCP}
		return model.Frontend{Key: key, Kind: kind, Bind: kind == model.KindClusterIP}
	}
	return []model.ServicePlan{
		plan("web", at("10.96.0.10", model.KindClusterIP), at("192.0.2.1", model.KindNodePort)), plan("six", at("fd00:96::10", model.KindClusterIP)),
	}
}

// lateAnswer is a kernel that replaces a table and whose answer is lost.
type lateAnswer struct {
	*nfttest.Fake
	lost bool
}

func (k *lateAnswer) Apply(ctx context.Context, p nft.Pass) nft.Outcome {
	out := k.Fake.Apply(ctx, p)
	if !k.lost && slices.ContainsFunc(p.Tables, func(c nft.TableChange) bool { return c.Op == nft.Update }) {
		k.lost = true
		return nft.Refuse(p, nft.ErrBusy)
	}
	return out
}

// A draft ends when the kernel has replaced the table, although its answer is lost. Later rows are for the new table.
func TestAnswerToReplacementIsLost(t *testing.T) {
	fake, _ := otherVersion(t, nft.Version+1)
	b := nftrules.New(&lateAnswer{Fake: fake})
	chains, jumps := desired(t, configs()["plain"])
	must(t, b.Sets().CreateAll(t.Context(), sets.All()...)...)
	must(t, b.Rules().WriteChains(t.Context(), chains)...)
	if err := errors.Join(b.Rules().WriteJumps(t.Context(), jumps)...); !errors.Is(err, nft.ErrBusy) {
		t.Errorf("jumps: %v", err)
	}
	wantOld(t, fake, false)
	must(t, b.Sets().Write(t.Context(), setNamed(t, sets.ClusterIP), clusterIPs(2))...)
	if got := contents(t, nftrules.New(fake).Sets(), sets.ClusterIP); got != "10.96.0.0,tcp:80 10.96.0.1,tcp:80" {
		t.Errorf("entries %s", got)
	}
	must(t, b.Rules().WriteJumps(t.Context(), jumps)...)
}

// modeOver is a fake kernel whose agents are modes that are dropped after their first pass.
type modeOver struct {
	fake    *nfttest.Fake
	servers *vservertest.Fake
	links   *linktest.Fake
}

func newModeOver() modeOver { return modeOver{nfttest.New(), vservertest.NewFake(), linktest.New()} }

// run reads the kernel and serves plans.
func (o modeOver) run(t *testing.T, tables nftrules.Kernel, plans ...model.ServicePlan) {
	t.Helper()
	b := nftrules.New(tables)
	m := ipvs.New(zaptest.NewLogger(t), configs()["plain"], ipvs.Deps{Servers: o.servers, Links: o.links, Sets: b.Sets(), Rules: b.Rules()})
	h := host()
	h.NodePorts = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	m.SetHost(h)
	must(t, m.Start(t.Context()), m.Load(t.Context()))
	for _, p := range plans {
		m.Set(p)
	}
	if r := m.Apply(t.Context(), dataplane.ApplyOptions{Retry: true}); r.Pending != 0 || r.Total().Err() != nil {
		t.Fatalf("%d rows pending: %v", r.Pending, r.Total().Err())
	}
}

func (o modeOver) setVersion(version uint32) {
	for _, f := range nft.Families() {
		o.fake.SetVersion(f, version)
	}
}

// An agent that starts over the tables of another version serves without a moment in which rules or entries
// are missing.
func TestModeOverOtherVersion(t *testing.T) {
	o := newModeOver()
	o.run(t, o.fake, plans(t)...)
	fresh := everything(t, o.fake)
	for _, version := range []uint32{0, nft.Version + 1} {
		markOld(t, o.fake)
		o.setVersion(version)
		states := []string{everything(t, o.fake)}
		watched := &relabelled{Kernel: o.fake, replaced: map[nft.Family]bool{nft.IPv4: true, nft.IPv6: true}}
		watched.after = func() { states = append(states, everything(t, o.fake)) }
		o.run(t, watched, plans(t)...)
		if len(states) < 3 || states[len(states)-1] != fresh {
			t.Errorf("version %d: %d states, the last of which is\n%s", version, len(states), states[len(states)-1])
		}
		if odd := slices.IndexFunc(states, func(s string) bool { return s != states[0] && s != fresh }); odd >= 0 {
			t.Errorf("version %d: after transaction %d packets meet\n%s", version, odd, states[odd])
		}
	}
}

// A virtual server that an agent of another version left is known as ours by the sets of that agent, and goes.
func TestOrphansUnderOtherVersion(t *testing.T) {
	o := newModeOver()
	list := plans(t)
	o.run(t, o.fake, list...)
	o.setVersion(nft.Version + 1)
	o.run(t, o.fake, list[1:]...)
	if text := o.servers.String() + everything(t, o.fake); strings.Contains(text, "192.0.2.1:80") || strings.Contains(text, "10.96.0.10") {
		t.Errorf("rows of a Service that is gone:\n%s", text)
	}
}
