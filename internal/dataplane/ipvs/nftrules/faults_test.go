package nftrules_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/nftrules"
	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/sets"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nft/nfttest"
	"github.com/kube-ipvs/kube-ipvs/internal/kernel/rules"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// served is a fake kernel with the rules and the sets of the mode, and the backend that wrote them.
func served(t *testing.T) (*nfttest.Fake, *nftrules.Backend) {
	t.Helper()
	fake := nfttest.New()
	b := nftrules.New(fake)
	must(t, b.Sets().CreateAll(t.Context(), sets.All()...)...)
	chains, jumps := desired(t, configs()["plain"])
	must(t, b.Rules().WriteChains(t.Context(), chains)...)
	must(t, b.Rules().WriteJumps(t.Context(), jumps)...)
	return fake, b
}

func clusterIPs(n int) (out []ipset.Change) {
	for i := range n {
		out = append(out, ipset.AddEntry(ipset.IPPort(netip.AddrFrom4([4]byte{10, 96, 0, byte(i)}), ipset.TCP, 80)))
	}
	return out
}

// counted is the number of entries that Stat reports for a set; -1 where it reports none.
func counted(t *testing.T, s nftrules.Sets, name string) int {
	t.Helper()
	infos, err := s.Stat(t.Context())
	must(t, err)
	for _, i := range infos {
		if i.Set.Name == name {
			return int(i.Elements)
		}
	}
	return -1
}

func TestCountsFollowOwnWritesWithoutReading(t *testing.T) {
	fake, b := served(t)
	s := b.Sets()
	counted(t, s, sets.ClusterIP) // reads
	must(t, s.Write(t.Context(), setNamed(t, sets.ClusterIP), clusterIPs(3))...)
	before := fake.Calls()
	if got := counted(t, s, sets.ClusterIP); got != 3 {
		t.Errorf("%d entries, want 3", got)
	}
	if n := fake.Calls() - before; n != 1 {
		t.Errorf("%d calls, want the one for the generation", n)
	}
	must(t, s.Write(t.Context(), setNamed(t, sets.ClusterIP), []ipset.Change{ipset.DeleteEntry(clusterIPs(1)[0].Entry)})...)
	if got := counted(t, s, sets.ClusterIP); got != 2 {
		t.Errorf("%d entries, want 2", got)
	}
}

func TestCountsShowForeignDeletions(t *testing.T) {
	fake, b := served(t)
	s := b.Sets()
	must(t, s.Write(t.Context(), setNamed(t, sets.ClusterIP), clusterIPs(3))...)
	fake.DeleteElement(nft.Key{Family: nft.IPv4, Name: sets.ClusterIP}, nft.Element{Addr: netip.MustParseAddr("10.96.0.1"), Protocol: nft.TCP, Port: 80})
	if got := counted(t, s, sets.ClusterIP); got != 2 {
		t.Errorf("%d entries, want 2", got)
	}
	fake.Flush()
	if _, _, err := b.Sets().List(t.Context(), sets.ClusterIP); !errors.Is(err, ipset.ErrNotExist) {
		t.Errorf("a set that was flushed: %v", err)
	}
	if got := counted(t, b.Sets(), sets.ClusterIP); got != -1 {
		t.Errorf("a set that was flushed has %d entries", got)
	}
}

// A set is known to be unchanged from the time it was listed until another program writes, or the
// outcome of a write is not known.
func TestUnchangedUntilAnotherProgramWrites(t *testing.T) {
	fake, _ := served(t)
	s := nftrules.New(fake).Sets() // as after a restart
	unchanged := func(want bool, when string) {
		t.Helper()
		if got := s.Unchanged(t.Context(), sets.ClusterIP); got != want {
			t.Errorf("%s: unchanged is %t", when, got)
		}
	}
	relist := func() {
		t.Helper()
		_, _, err := s.List(t.Context(), sets.ClusterIP)
		must(t, err)
	}
	unchanged(false, "before it was listed")
	relist()
	unchanged(true, "after it was listed")
	must(t, s.Write(t.Context(), setNamed(t, sets.ClusterIP), clusterIPs(3))...)
	before := fake.Calls()
	unchanged(true, "after a write of ours")
	if n := fake.Calls() - before; n != 1 {
		t.Errorf("%d calls, want the one for the generation", n)
	}
	fake.DeleteElement(nft.Key{Family: nft.IPv4, Name: sets.ClusterIP}, nft.Element{Addr: netip.MustParseAddr("10.96.0.1"), Protocol: nft.TCP, Port: 80})
	unchanged(false, "after a write of another program")
	counted(t, s, sets.ClusterIP) // reads all sets, and returns no entries
	unchanged(false, "after a count")
	relist()
	unchanged(true, "after it was listed again")
	fake.FailCall(2, nft.ErrBusy)
	if err := errors.Join(s.Write(t.Context(), setNamed(t, sets.ClusterIP), clusterIPs(4)[3:])...); err == nil {
		t.Error("a write that the kernel did not take succeeded")
	}
	unchanged(false, "after a write that failed")
	relist()
	fake.FailAlways(nft.ErrBusy)
	unchanged(false, "while the kernel does not answer")
}

// Sets that this process has made need no reading at all.
func TestOwnSetsAreKnown(t *testing.T) {
	fake, b := served(t)
	s := b.Sets()
	must(t, s.Write(t.Context(), setNamed(t, sets.ClusterIP), clusterIPs(3))...)
	before := fake.Calls()
	if got := counted(t, s, sets.ClusterIP); got != 3 {
		t.Errorf("%d entries, want 3", got)
	}
	if !s.Unchanged(t.Context(), sets.ClusterIP) {
		t.Error("a set of our own has changed")
	}
	if n := fake.Calls() - before; n != 2 {
		t.Errorf("%d calls, want two for the generation", n)
	}
}

// A reading of the rules shows at once that all sets are gone, also while a full reading of the sets has to wait.
func TestLostSetsShowWithTheRules(t *testing.T) {
	fake, b := served(t)
	for range 3 { // the last full readings were vain, so the next one waits
		fake.AddRule(nft.Key{Family: nft.IPv4, Name: "nat-KUBE-SERVICES"}, nft.NewRule(nft.Drop))
		counted(t, b.Sets(), sets.ClusterIP)
	}
	fake.Flush()
	if _, _, err := b.Rules().List(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := counted(t, b.Sets(), sets.ClusterIP); got != -1 {
		t.Errorf("a set that was flushed has %d entries", got)
	}
}

var servicesChain = rules.ChainKey{Family: rules.IPv4, Table: "nat", Name: "KUBE-SERVICES"}

func TestForeignRuleShows(t *testing.T) {
	fake, b := served(t)
	before, _ := list(t, fake)
	generation := b.Rules().Generation(t.Context())
	fake.AddRule(nft.Key{Family: nft.IPv4, Name: "nat-KUBE-SERVICES"}, nft.NewRule(nft.Drop))
	if now := b.Rules().Generation(t.Context()); now == generation || now == 0 {
		t.Errorf("generation %d after %d", now, generation)
	}
	after, _ := list(t, fake)
	if after[servicesChain] == before[servicesChain] {
		t.Error("a rule of another program does not show")
	}
	must(t, b.Rules().WriteChains(t.Context(), []rules.ChainChange{{Op: rules.Update, Key: servicesChain, Chain: before[servicesChain]}})...)
	if again, _ := list(t, fake); again[servicesChain] != before[servicesChain] {
		t.Errorf("after the repair:\n%s", again[servicesChain].Rules)
	}
}

// A base chain that another program has changed has no jumps, and is written again as a whole.
func TestForeignRuleInBaseChain(t *testing.T) {
	fake, b := served(t)
	_, before := list(t, fake)
	fake.AddRule(nft.Key{Family: nft.IPv4, Name: "nat-OUTPUT"}, nft.NewRule(nft.Drop))
	key := rules.JumpKey{Family: rules.IPv4, Table: "nat", Hook: "OUTPUT", Target: "KUBE-SERVICES"}
	_, after := list(t, fake)
	if _, there := after[key]; there {
		t.Errorf("jumps %v", after)
	}
	must(t, b.Rules().WriteJumps(t.Context(), []rules.JumpChange{{Op: rules.Add, Key: key, Jump: before[key]}})...)
	if _, again := list(t, fake); again[key] != before[key] {
		t.Errorf("after the repair: %v", again)
	}
}

// A reading that fails is an error and never an empty answer.
func TestReadErrorIsNotAbsence(t *testing.T) {
	fake, b := served(t)
	planned := errors.New("planned")
	fake.FailAlways(planned)
	s, r := b.Sets(), b.Rules()
	_, err := s.ListSets(t.Context())
	_, _, listErr := s.List(t.Context(), sets.ClusterIP)
	_, statErr := s.Stat(t.Context())
	_, _, rulesErr := r.List(t.Context())
	writeErrs := s.Write(t.Context(), setNamed(t, sets.ClusterIP), clusterIPs(2))
	for _, err := range append(writeErrs, err, listErr, statErr, rulesErr) {
		if !errors.Is(err, planned) || errors.Is(err, ipset.ErrNotExist) {
			t.Errorf("error %v", err)
		}
	}
	if g := r.Generation(t.Context()); g != 0 {
		t.Errorf("generation %d", g)
	}
	for _, err := range r.WriteChains(t.Context(), []rules.ChainChange{{Op: rules.Delete, Key: servicesChain}}) {
		if !errors.Is(err, planned) {
			t.Errorf("error %v", err)
		}
	}
	fake.Heal()
	if chains, _ := list(t, fake); chains[servicesChain].Rules == "" {
		t.Error("the chain is gone")
	}
}

// A network that the kernel refuses fails alone, and what the kernel has is read before the next write.
func TestRefusedRange(t *testing.T) {
	fake, b := served(t)
	s, set := b.Sets(), setNamed(t, sets.SourceCIDR)
	at := func(addr, network string) ipset.Change { return ipset.AddEntry(entry(t, set, addr+",tcp:80,"+network)) }
	fake.RefuseRow("add element ip kube-ipvs KUBE-LOAD-BALANCER-SOURCE-CIDR { 192.0.2.1 . tcp . 80 . 10.0.0.0/8 }", nft.ErrBusy)
	errs := s.Write(t.Context(), set, []ipset.Change{at("192.0.2.1", "10.0.0.0/8"), at("192.0.2.2", "10.0.0.0/8")})
	if len(errs) != 2 || !errors.Is(errs[0], ipset.ErrBusy) || errs[1] != nil {
		t.Errorf("errors %v", errs)
	}
	fake.Heal()
	must(t, s.Write(t.Context(), set, []ipset.Change{at("192.0.2.1", "10.0.0.0/8")})...)
	if got, want := contents(t, s, set.Name), "192.0.2.1,tcp:80,10.0.0.0/8 192.0.2.2,tcp:80,10.0.0.0/8"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestEntriesWithoutACounterpart(t *testing.T) {
	_, b := served(t)
	set := setNamed(t, sets.SourceCIDR)
	e := entry(t, set, "192.0.2.1,tcp:80,10.0.0.0/8")
	e.NoMatch = true
	if errs := b.Sets().Write(t.Context(), set, []ipset.Change{ipset.AddEntry(e)}); len(errs) != 1 || !errors.Is(errs[0], ipset.ErrUnsupported) {
		t.Errorf("an entry that excludes: %v", errs)
	}
	stranger := ipset.Set{Name: "STRANGER", Type: ipset.HashIP, Family: ipset.IPv4}
	if _, _, err := b.Sets().List(t.Context(), stranger.Name); !errors.Is(err, ipset.ErrNotExist) {
		t.Errorf("a set that is not ours: %v", err)
	}
	for _, err := range []error{
		errors.Join(b.Sets().CreateAll(t.Context(), stranger)...), b.Sets().Replace(t.Context(), stranger, nil),
		b.Sets().Destroy(t.Context(), stranger.Name), errors.Join(b.Sets().Write(t.Context(), stranger, clusterIPs(1))...),
	} {
		if !errors.Is(err, ipset.ErrInvalid) {
			t.Errorf("a set that is not ours: %v", err)
		}
	}
}
