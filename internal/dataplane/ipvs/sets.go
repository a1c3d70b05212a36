package ipvs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/internal/dataplane/ipvs/ownership"
	"github.com/kube-ipvs/kube-ipvs/internal/delta"
	"github.com/kube-ipvs/kube-ipvs/internal/model"
	"github.com/kube-ipvs/kube-ipvs/ipset"
)

// The sets, by their IPv4 names: those of kube-proxy (pkg/proxy/ipvs/ipset.go, v1.36), and
// our own.
const (
	setLoopBack          = "KUBE-LOOP-BACK"
	setClusterIP         = ownership.ClusterIP
	setExternalIP        = ownership.ExternalIP
	setExternalIPLocal   = ownership.ExternalIPLocal
	setLoadBalancer      = ownership.LoadBalancer
	setLoadBalancerLocal = "KUBE-LOAD-BALANCER-LOCAL"
	setLoadBalancerFW    = "KUBE-LOAD-BALANCER-FW"
	setSourceIP          = "KUBE-LOAD-BALANCER-SOURCE-IP"
	setSourceCIDR        = "KUBE-LOAD-BALANCER-SOURCE-CIDR"
	setNodePortTCP       = ownership.NodePortTCP
	setNodePortUDP       = ownership.NodePortUDP
	setNodePortSCTP      = ownership.NodePortSCTP
	setNodePortLocalTCP  = "KUBE-NODE-PORT-LOCAL-TCP"
	setNodePortLocalUDP  = "KUBE-NODE-PORT-LOCAL-UDP"
	setNodePortLocalSCTP = "KUBE-NODE-PORT-LOCAL-SCTP-HASH"
	setHealthCheck       = "KUBE-HEALTH-CHECK-NODE-PORT"
	setIPVSIPs           = ownership.Addresses
	// setNodePortIPs are the addresses of the node on which NodePorts answer, so
	// that a NodePort rule never matches a service address.
	setNodePortIPs = ownership.NodePortIPs
	// setDetour are the frontends that clients of this node leave for another.
	setDetour = "KUBE-DETOUR"
	// setDetourEnd are the frontends that exist for detours alone.
	setDetourEnd = ownership.DetourEnd
	// setNoLocal are the frontends that a Local policy leaves without an endpoint
	// here while there are some elsewhere.
	setNoLocal = "KUBE-NO-LOCAL"
	// setHold are the servers whose scheduler changes at the moment (hold.go). The kernel
	// deletes its entries by itself.
	setHold = "KUBE-HOLD"
	// setDirectIPs are the addresses from which backends answer themselves. It is there
	// while there are any.
	setDirectIPs = "KUBE-DIRECT-IPS"
	// setCapture are the addresses and ports whose packets become local although the address is not bound, setCaptureIPs the
	// addresses of those. They are there while there are any.
	setCapture    = "KUBE-CAPTURE"
	setCaptureIPs = "KUBE-CAPTURE-IPS"
)

// setTypes stand in the order in which entries are added, and against which they
// are deleted: what keeps clients out comes first, then what lets them in, last
// what makes an address ours and so refuses the rest.
var setTypes = []struct {
	name    string
	kind    ipset.Type
	comment string // of the rules that match it
}{
	{setLoopBack, ipset.HashIPPortIP, "Kubernetes endpoints dst ip:port, source ip for solving hairpin purpose"},
	{setNoLocal, ipset.HashIPPort, "Kubernetes service without an endpoint on this node under a Local policy"},
	{setHold, ipset.HashIPPort, "Kubernetes service whose scheduler changes"},
	{setSourceCIDR, ipset.HashIPPortNet, "Kubernetes service load balancer ip + port + source cidr for packet filter purpose"},
	{setSourceIP, ipset.HashIPPortIP, "Kubernetes service load balancer ip + port + source IP for packet filter purpose"},
	{setLoadBalancerFW, ipset.HashIPPort, "Kubernetes service load balancer ip + port for load balancer with sourceRange"},
	{setNodePortLocalTCP, ipset.BitmapPort, "Kubernetes nodeport TCP port with externalTrafficPolicy=local"},
	{setNodePortLocalUDP, ipset.BitmapPort, "Kubernetes nodeport UDP port with externalTrafficPolicy=local"},
	{setNodePortLocalSCTP, ipset.HashIPPort, "Kubernetes nodeport SCTP port with externalTrafficPolicy=local with type 'hash ip:port'"},
	{setLoadBalancerLocal, ipset.HashIPPort, "Kubernetes service load balancer ip + port with externalTrafficPolicy=local"},
	{setExternalIPLocal, ipset.HashIPPort, "Kubernetes service external ip + port with externalTrafficPolicy=local"},
	{setDetour, ipset.HashIPPort, "Kubernetes service ip + port that clients of this node use by another way"},
	{setDetourEnd, ipset.HashIPPort, "Kubernetes service ip + port that nobody dials"},
	{setClusterIP, ipset.HashIPPort, "Kubernetes service cluster ip + port for masquerade purpose"},
	{setExternalIP, ipset.HashIPPort, "Kubernetes service external ip + port for masquerade and filter purpose"},
	{setLoadBalancer, ipset.HashIPPort, "Kubernetes service lb portal"},
	{setNodePortIPs, ipset.HashIP, "Kubernetes node addresses that serve nodeports"},
	{setNodePortTCP, ipset.BitmapPort, "Kubernetes nodeport TCP port for masquerade purpose"},
	{setNodePortUDP, ipset.BitmapPort, "Kubernetes nodeport UDP port for masquerade purpose"},
	{setNodePortSCTP, ipset.HashIPPort, "Kubernetes nodeport SCTP port for masquerade purpose with type 'hash ip:port'"},
	{setDirectIPs, ipset.HashIP, "Kubernetes service address from which endpoints answer themselves"},
	{setCapture, ipset.HashIPPort, "Kubernetes service ip + port of an address that another machine has"},
	{setCaptureIPs, ipset.HashIP, "Kubernetes service address that another machine has"},
	{setHealthCheck, ipset.BitmapPort, "Kubernetes health check node port"},
	{setIPVSIPs, ipset.HashIP, ""},
}

// setName is the kernel's name of a set.
func setName(f model.Family, name string) string { return ownership.SetName(f, name) }

func setFamily(f model.Family) ipset.Family {
	if f == model.IPv6 {
		return ipset.IPv6
	}
	return ipset.IPv4
}

// AllSets lists the sets that the mode uses, empty, for both families.
func AllSets() []ipset.Set {
	families := model.Families()
	c := newCatalogue(families[:])
	return slices.SortedFunc(maps.Values(c.sets), func(a, b ipset.Set) int { return c.compare(a.Name, b.Name) })
}

// catalogue knows our sets by name, and their order.
type catalogue struct {
	sets  map[string]ipset.Set
	known map[string]setInfo
}

// setInfo is what a set's header does not tell.
type setInfo struct {
	// name is the set's IPv4 name: what it is for.
	name   string
	family model.Family
	rank   int
}

func newCatalogue(families []model.Family) catalogue {
	c := catalogue{sets: map[string]ipset.Set{}, known: map[string]setInfo{}}
	for i, t := range setTypes {
		for _, f := range families {
			set := ipset.Set{Name: setName(f, t.name), Type: t.kind}
			if t.kind.Hash() {
				set.Family = setFamily(f)
			}
			if t.name == setHold {
				set.Timeout = holdSeconds
			}
			c.sets[set.Name] = set.WithDefaults()
			c.known[set.Name] = setInfo{t.name, f, i}
		}
	}
	return c
}

func (c catalogue) owned(name string) bool { _, ok := c.sets[name]; return ok }

func (c catalogue) compare(a, b string) int {
	return cmp.Or(cmp.Compare(c.known[a].rank, c.known[b].rank), cmp.Compare(a, b))
}

// sameSet compares headers; the kernel grows the hash of a set by itself.
func sameSet(a, b ipset.Set) bool { return a.Compatible(b) }

// sameShape tells whether the entries of two sets look alike.
func sameShape(a, b ipset.Set) bool { return a.Type == b.Type && a.Family == b.Family }

// raise lets a set hold at least so many entries. Sets begin with kube-proxy's
// limit, so that a node can roll back to it, and keep what they have outgrown.
func (m *Mode) raise(name string, entries uint32) {
	set := m.catalogue.sets[name]
	if !set.Type.Hash() || entries <= set.MaxElem {
		return
	}
	set.MaxElem = entries
	m.catalogue.sets[name] = set
	if _, wanted := m.sets.Desired(name); wanted {
		m.sets.SetDesired(name, set)
	}
}

// mostElements is the highest limit we ask for; the kernel takes 2^32 - 1.
const mostElements = 1 << 31

// setFull makes a set that refused an entry grow: the sets' stage of the next
// pass replaces it by one with room for twice what is wanted. It may be called
// for each batch of one pass; growth that is asked for already is enough.
func (m *Mode) setFull(name string) {
	have, ok := m.sets.Believed(name)
	if !ok || have.MaxElem < m.catalogue.sets[name].MaxElem {
		return
	}
	wanted, rest := m.entriesOf(name)
	room := 2 * max(uint64(len(wanted)+len(rest)), uint64(have.MaxElem))
	limit := uint64(max(have.MaxElem, 1))
	for limit < room && limit < mostElements {
		limit *= 2
	}
	limit = min(limit, mostElements)
	m.log.Info("set is full and will grow", zap.String("set", name), zap.Uint64("to", limit))
	m.raise(name, uint32(limit))
}

// setStore makes and removes sets.
type setStore struct {
	mode *Mode
	sets Sets
}

// List returns our sets.
func (s setStore) List(ctx context.Context) (map[string]ipset.Set, error) {
	found, err := s.sets.ListSets(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]ipset.Set{}
	for _, set := range found {
		if !s.mode.catalogue.owned(set.Name) {
			continue
		}
		out[set.Name] = set
		bigger := s.mode.catalogue.sets[set.Name]
		bigger.MaxElem = set.MaxElem
		if sameSet(bigger, set) {
			s.mode.raise(set.Name, set.MaxElem)
		}
	}
	return out, nil
}

// Write creates sets together, which come first, and replaces and destroys others one by one:
// there are some forty. Once one is not answered in time the rest is not tried: each would cost its deadline.
func (s setStore) Write(ctx context.Context, changes []delta.Change[string, ipset.Set]) []error {
	errs := make([]error, len(changes))
	made := s.createAll(ctx, changes)
	var silence error
	for i, c := range changes {
		switch {
		case silence != nil:
			errs[i] = notTried(c.Key, silence)
			continue
		case c.Op == delta.Add:
			errs[i] = s.created(ctx, c.Value, made[c.Key])
		default:
			errs[i] = s.change(ctx, c)
		}
		if unanswered(errs[i]) {
			silence = errs[i]
		}
	}
	return errs
}

// createAll makes the sets to be added, and returns what became of those that failed.
func (s setStore) createAll(ctx context.Context, changes []delta.Change[string, ipset.Set]) map[string]error {
	var sets []ipset.Set
	for _, c := range changes {
		if c.Op == delta.Add {
			sets = append(sets, c.Value)
		}
	}
	failed := map[string]error{}
	for i, err := range s.sets.CreateAll(ctx, sets...) {
		failed[sets[i].Name] = err
	}
	return failed
}

// unanswered tells whether a call came to its deadline.
func unanswered(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// notTried is why a set was left out: another one had no answer.
func notTried(set string, silence error) error {
	return fmt.Errorf("set %s: not tried: %w", set, silence)
}

func (s setStore) change(ctx context.Context, c delta.Change[string, ipset.Set]) error {
	if c.Op == delta.Update {
		return s.replace(ctx, c.Value)
	}
	return s.destroy(ctx, c.Key)
}

// created answers for a set that was to be made: one that is there already may be of another shape.
func (s setStore) created(ctx context.Context, set ipset.Set, err error) error {
	if !errors.Is(err, ipset.ErrExist) {
		return err
	}
	found, _, err := s.sets.List(ctx, set.Name)
	if err == nil && sameSet(found, set) {
		return nil
	}
	return s.replace(ctx, set)
}

// replace swaps a set of the wrong shape for one of the right shape, with the
// entries that are wanted and those that are not to go yet. The kernel refuses
// that while a rule refers to a set of another type, so our own rules are taken
// out first; the chains' stage, which follows, puts them back.
func (s setStore) replace(ctx context.Context, set ipset.Set) error {
	wanted, rest := s.mode.entriesOf(set.Name)
	entries := append(wanted, rest...)
	err := s.sets.Replace(ctx, set, entries)
	if errors.Is(err, ipset.ErrBusy) {
		if err := s.mode.releaseSet(ctx, set.Name); err != nil {
			return fmt.Errorf("replace set %s: %w", set.Name, err)
		}
		err = s.sets.Replace(ctx, set, entries)
	}
	if err != nil {
		return err
	}
	for _, e := range wanted {
		s.mode.members.SetActual(memberKey{set.Name, e}, struct{}{})
	}
	return nil
}

func (s setStore) destroy(ctx context.Context, name string) error {
	err := s.sets.Destroy(ctx, name)
	if errors.Is(err, ipset.ErrNotExist) {
		err = nil
	}
	if err == nil {
		s.mode.forgetMembers(name)
	}
	return err
}

// OwnedSet tells whether a set is one of ours, by name.
func OwnedSet(name string) bool {
	return slices.ContainsFunc(AllSets(), func(s ipset.Set) bool { return s.Name == name })
}
