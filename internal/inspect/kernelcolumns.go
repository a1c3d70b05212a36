package inspect

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Whose a row of the kernel is.
const (
	OwnerService = "service"   // the row belongs to the Services that are named
	OwnerOurs    = "kube-ipvs" // ours, and no known Service has it
	OwnerForeign = "foreign"   // written by another program: never touched
)

// Owned names the owner of a row.
type Owned struct {
	// Owner is one of the constants above.
	Owner    string   `json:"owner"`
	Services []string `json:"services,omitempty"`
}

// OwnedBy is the owner of a row that is ours or not, and of these Services.
func OwnedBy(ours bool, services []string) Owned {
	switch {
	case len(services) > 0:
		return Owned{OwnerService, services}
	case ours:
		return Owned{Owner: OwnerOurs}
	}
	return Owned{Owner: OwnerForeign}
}

func (o Owned) text() string {
	if len(o.Services) > 0 {
		return few(o.Services)
	}
	return o.Owner
}

func (o Owned) tone() Tone {
	switch o.Owner {
	case OwnerService:
		return Good
	case OwnerForeign:
		return Notable
	}
	return Plain
}

// owner is the column of a row's owner.
func owner[R any](of func(R) Owned) Column[R] {
	return Column[R]{Name: "OWNER", Text: func(r R) string { return of(r).text() }, Tone: func(r R) Tone { return of(r).tone() }}
}

// KernelServerRow is a destination of a virtual server in the kernel; a server without any has one row.
type KernelServerRow struct {
	Server    string     `json:"server"`
	Address   netip.Addr `json:"address"`
	Port      uint16     `json:"port"`
	Protocol  string     `json:"protocol"`
	Scheduler string     `json:"scheduler"`
	Flags     []string   `json:"flags,omitempty"`
	// Destination is an address and port, empty for none; the fields below are the destination's.
	Destination string `json:"destination,omitempty"`
	Forward     string `json:"forward,omitempty"`
	Weight      uint16 `json:"weight"`
	// Active connections are established, Inactive ones all others that the kernel keeps.
	Active   uint32 `json:"active"`
	Inactive uint32 `json:"inactive"`
	Owned
}

// KernelServerTable shows virtual servers.
func KernelServerTable() Table[KernelServerRow] {
	return Table[KernelServerRow]{
		{Name: "SERVER", Text: func(r KernelServerRow) string { return r.Server }, Compare: func(a, b KernelServerRow) int {
			return comparePlaces(a.Address, b.Address, a.Port, b.Port, a.Protocol, b.Protocol)
		}},
		column("SCHEDULER", func(r KernelServerRow) string { return r.Scheduler }),
		column("DESTINATION", func(r KernelServerRow) string { return r.Destination }),
		number("WEIGHT", func(r KernelServerRow) uint16 { return r.Weight }),
		number("ACTIVE", func(r KernelServerRow) uint32 { return r.Active }),
		number("INACTIVE", func(r KernelServerRow) uint32 { return r.Inactive }),
		owner(func(r KernelServerRow) Owned { return r.Owned }),
		wide(column("FORWARD", func(r KernelServerRow) string { return r.Forward })),
		wide(column("FLAGS", func(r KernelServerRow) string { return strings.Join(r.Flags, ",") })),
	}
}

// KernelSetRow is a set in the kernel.
type KernelSetRow struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Family  string `json:"family"`
	Entries uint32 `json:"entries"`
	// References are the rules and sets that use it, Memory is in bytes.
	References uint32 `json:"references"`
	Memory     uint32 `json:"memoryBytes"`
	Owned
}

// KernelSetTable shows sets.
func KernelSetTable() Table[KernelSetRow] {
	return Table[KernelSetRow]{
		column("SET", func(r KernelSetRow) string { return r.Name }),
		column("TYPE", func(r KernelSetRow) string { return r.Type }),
		number("ENTRIES", func(r KernelSetRow) uint32 { return r.Entries }),
		owner(func(r KernelSetRow) Owned { return r.Owned }),
		wide(column("FAMILY", func(r KernelSetRow) string { return r.Family })),
		wide(number("REFERENCES", func(r KernelSetRow) uint32 { return r.References })),
		wide(number("MEMORY", func(r KernelSetRow) uint32 { return r.Memory })),
	}
}

// KernelEntryRow is an entry of a set in the kernel.
type KernelEntryRow struct {
	Set   string `json:"set"`
	Entry string `json:"entry"`
	Owned
}

// KernelEntryTable shows entries.
func KernelEntryTable() Table[KernelEntryRow] {
	return Table[KernelEntryRow]{
		column("SET", func(r KernelEntryRow) string { return r.Set }),
		{Name: "ENTRY", Text: func(r KernelEntryRow) string { return r.Entry }, Compare: func(a, b KernelEntryRow) int { return compareNumbered(a.Entry, b.Entry) }},
		owner(func(r KernelEntryRow) Owned { return r.Owned }),
	}
}

// KernelRuleRow is a rule of iptables in one of our chains, or one that leads there.
type KernelRuleRow struct {
	// Family is ip or ip6.
	Family string `json:"family"`
	Table  string `json:"table"`
	Chain  string `json:"chain"`
	// Number is its place in a chain of ours, from 1 on. It is 0 for a rule that leads from a
	// built-in chain to one of ours, because a built-in chain also has rules of others. The one row
	// of a chain without rules has no Rule.
	Number int    `json:"number"`
	Rule   string `json:"rule"`
	Owned
}

// KernelRuleTable shows rules.
func KernelRuleTable() Table[KernelRuleRow] {
	return Table[KernelRuleRow]{
		column("FAMILY", func(r KernelRuleRow) string { return r.Family }),
		column("TABLE", func(r KernelRuleRow) string { return r.Table }),
		column("CHAIN", func(r KernelRuleRow) string { return r.Chain }),
		{Name: "NUMBER", Text: func(r KernelRuleRow) string {
			if r.Number == 0 {
				return ""
			}
			return strconv.Itoa(r.Number)
		}, Compare: by(func(r KernelRuleRow) int { return r.Number })},
		owner(func(r KernelRuleRow) Owned { return r.Owned }),
		column("RULE", func(r KernelRuleRow) string { return r.Rule }),
	}
}

// KernelAddressRow is an address or range that this machine answers on.
type KernelAddressRow struct {
	Address string `json:"address"`
	// Kind is address, route (a range that is local as a whole), detached (local to marked packets alone) or
	// half detached (something of that is missing). It is announced for an address that routers learn of.
	Kind string `json:"kind"`
	// Link is the routing table of an announced address.
	Link string `json:"link"`
	Owned
}

// KernelAddressTable shows addresses.
func KernelAddressTable() Table[KernelAddressRow] {
	return Table[KernelAddressRow]{
		{Name: "ADDRESS", Text: func(r KernelAddressRow) string { return r.Address }, Compare: func(a, b KernelAddressRow) int {
			pa, _ := ParsePlace(a.Address)
			pb, _ := ParsePlace(b.Address)
			return cmp.Or(pa.Range.Addr().Compare(pb.Range.Addr()), cmp.Compare(a.Address, b.Address))
		}},
		column("KIND", func(r KernelAddressRow) string { return r.Kind }),
		column("LINK", func(r KernelAddressRow) string { return r.Link }),
		owner(func(r KernelAddressRow) Owned { return r.Owned }),
	}
}

// Owners tell which Services a row of the kernel belongs to.
type Owners struct {
	frontends, backends, ports map[string][]string
	addresses                  map[netip.Addr][]string
	names                      map[string]bool
}

// NewOwners learns who owns what from the lists of an agent. A frontend that a Service lost to
// another one is ignored.
func NewOwners(frontends []FrontendRow, backends []BackendRow) *Owners {
	o := &Owners{
		frontends: map[string][]string{}, backends: map[string][]string{}, ports: map[string][]string{},
		addresses: map[netip.Addr][]string{}, names: map[string]bool{},
	}
	for _, f := range frontends {
		if f.Winner != "" {
			continue
		}
		service := f.Namespace + "/" + f.Name
		insert(o.frontends, f.Frontend, service)
		if f.Kind == "NodePort" { // its address is the node's
			insert(o.ports, portOf(f.Protocol, f.Port), service)
		} else {
			insert(o.addresses, f.Address, service)
		}
		o.names[joinName(f.Namespace, f.Name, f.PortName)] = true
	}
	for _, b := range backends {
		insert(o.backends, b.Backend+"/"+b.Protocol, b.Namespace+"/"+b.Name)
	}
	return o
}

// insert puts a Service into a list that stays sorted.
func insert[K comparable](m map[K][]string, k K, service string) {
	if i, found := slices.BinarySearch(m[k], service); !found {
		m[k] = slices.Insert(m[k], i, service)
	}
}

func portOf(protocol string, port uint16) string { return strconv.Itoa(int(port)) + "/" + protocol }

// Frontend are the Services that answer on an address, port and protocol.
func (o *Owners) Frontend(at netip.AddrPort, protocol string) []string {
	return o.frontends[at.String()+"/"+protocol]
}

// Backend are those that send to one.
func (o *Owners) Backend(to netip.AddrPort, protocol string) []string {
	return o.backends[to.String()+"/"+protocol]
}

// NodePort are those that answer on a port of the node.
func (o *Owners) NodePort(port uint16, protocol string) []string {
	return o.ports[portOf(protocol, port)]
}

// Address are those that answer on any port of an address.
func (o *Owners) Address(a netip.Addr) []string { return o.addresses[a] }

// Titled is the Service whose port a comment of kube-proxy's kind begins with: "shop/cart:http cluster IP".
func (o *Owners) Titled(comment string) []string {
	title, _, _ := strings.Cut(comment, " ")
	if !o.names[title] {
		return nil
	}
	namespace, rest, _ := strings.Cut(title, "/")
	name, _, _ := strings.Cut(rest, ":")
	return []string{namespace + "/" + name}
}
