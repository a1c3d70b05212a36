package nftables

import (
	"errors"
	"maps"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/internal/kernel/nfnetlink"
)

// Filter is one table with the base chains through which packets to or from this machine
// pass, the chains those lead to, and the sets that their rules ask.
type Filter struct {
	Key
	Chains map[string]Chain
	Sets   map[string]Set
	// Unread is why not everything of the table was read, empty where everything was.
	// A chain that is missing, or incomplete, must not be taken for an empty one.
	Unread string
}

// Chain is one chain of a Filter.
type Chain struct {
	// Hook is where a base chain is called; nil for a chain that only others lead to.
	Hook  *Hook
	Rules []Rule
	// Unread: the chain has more rules than are read, and Rules has none of them.
	Unread bool
}

// Hook is where a base chain is called (include/uapi/linux/netfilter.h, nf_inet_hooks).
type Hook struct {
	Name     string // input, forward or output
	Priority int32
	Drop     bool // its policy
}

// Rule is one rule, in the expressions that the kernel evaluates.
type Rule struct {
	Handle uint64
	Exprs  []Expr
}

// Expr is one expression of a rule. Which fields count depends on Name; an expression that
// this package does not know has its Name alone.
type Expr struct {
	Name string
	// Source and Target are registers, in the numbers of enum nft_registers.
	Source, Target uint32
	// Key is the key of meta and ct, Op that of cmp, range, bitwise and byteorder; of lookup
	// Op is 1 where it is inverted.
	Key, Op uint32
	// Base, Offset and Len are of payload, in bytes.
	Base, Offset, Len uint32
	// Data is compared, loaded, the mask of bitwise or the lower end of range; More is the
	// second operand of bitwise or the upper end of range.
	Data, More []byte
	Set        string
	Verdict    *Verdict
	// Extension is the name of an xtables match or target.
	Extension string
}

// Verdict is what immediate, or an element of a map, decides. The codes are those of the
// kernel (include/uapi/linux/netfilter/nf_tables.h, enum nft_verdicts; linux/netfilter.h).
type Verdict struct {
	Code  int32
	Chain string
}

// The codes of a Verdict.
const (
	VerdictDrop     = 0
	VerdictAccept   = 1
	VerdictQueue    = 3
	VerdictContinue = -1
	VerdictBreak    = -2
	VerdictJump     = -3
	VerdictGoto     = -4
	VerdictReturn   = -5
)

// Set is a set or a map.
type Set struct {
	// Interval: elements are ends of ranges, each up to the next one, but for those that have
	// an End of their own.
	Interval bool
	Elements []Element
	// Unread: the set has more elements than are read.
	Unread bool
}

// Element is an element of a set.
type Element struct {
	Key, End []byte
	// Close: an interval that begins here is not in the set.
	Close   bool
	Data    []byte
	Verdict *Verdict
}

// The limits of a read: a larger table is not checked, so that a read is cheap.
const (
	mostRules    = 4096 // of one table
	mostElements = 16384
)

// hookNames are the hooks that are read, by number.
var hookNames = map[uint32]string{1: "input", 2: "forward", 3: "output"}

// filters reads all tables with base chains of these hooks, again if they changed meanwhile.
func (x exchange) filters() ([]Filter, error) {
	for attempt := 1; ; attempt++ {
		out, err := x.filtersOnce()
		if !errors.Is(err, ErrInterrupted) || attempt == attempts {
			return out, err
		}
	}
}

func (x exchange) filtersOnce() ([]Filter, error) {
	before, err := x.generation()
	if err != nil {
		return nil, err
	}
	chains, err := x.chains()
	if err != nil {
		return nil, err
	}
	var out []Filter
	for _, key := range slices.SortedFunc(maps.Keys(chains), Key.Compare) {
		if all := chains[key]; hooked(all) {
			f, err := x.filter(key, all)
			if err != nil {
				return nil, err
			}
			out = append(out, f)
		}
	}
	after, err := x.generation()
	if err == nil && before != after {
		err = ErrInterrupted
	}
	return out, err
}

// declared is a chain as the list of all chains has it.
type declared struct {
	hook *Hook
	use  uint32 // rules, and jumps to it
}

func hooked(chains map[string]declared) bool {
	for _, c := range chains {
		if c.hook != nil {
			return true
		}
	}
	return false
}

// chains lists those of the families that packets of IP meet.
func (x exchange) chains() (map[Key]map[string]declared, error) {
	out := map[Key]map[string]declared{}
	err := x.dump(appendMessage(nil, getChain, nfnetlink.Dump, x.Seq+1, 0, ""), newChain, func(family uint8, a attrs) error {
		key := Key{Family: familyName(family), Name: a.Text(chainTable)}
		if !slices.Contains(ipFamilies, key.Family) {
			return nil
		}
		if out[key] == nil {
			out[key] = map[string]declared{}
		}
		c := declared{use: a.Number(chainUse)}
		if hook, ok := a.Get(chainHook); ok {
			if name, wanted := hookNames[hook.Number(hookNumber)]; wanted {
				c.hook = &Hook{Name: name, Priority: int32(hook.Number(hookPriority)), Drop: a.Has(chainPolicy) && a.Number(chainPolicy) == VerdictDrop}
			}
		}
		out[key][a.Text(chainName)] = c
		return a.Err()
	})
	return out, err
}

var ipFamilies = []string{"inet", "ip", "ip6"}

// filter reads the chains that packets meet, and those that they lead to.
func (x exchange) filter(key Key, all map[string]declared) (Filter, error) {
	f := Filter{Key: key, Chains: map[string]Chain{}, Sets: map[string]Set{}}
	var todo []string
	for name, c := range all {
		if c.hook != nil {
			todo = append(todo, name)
		}
	}
	slices.Sort(todo)
	for read := 0; len(todo) > 0; todo = todo[1:] {
		name := todo[0]
		if _, known := f.Chains[name]; known {
			continue
		}
		c := Chain{Hook: all[name].hook}
		if read += int(all[name].use); read > mostRules {
			c.Unread, f.Unread = true, "more rules than can be checked"
			f.Chains[name] = c
			continue
		}
		var err error
		if c.Rules, err = x.rules(key, name); err != nil {
			return f, err
		}
		f.Chains[name] = c
		leads, err := x.follow(&f, c.Rules)
		if err != nil {
			return f, err
		}
		todo = append(todo, leads...)
	}
	return f, nil
}

// follow reads the sets that rules ask, and returns the chains that rules and maps lead to.
func (x exchange) follow(f *Filter, list []Rule) (leads []string, err error) {
	for _, r := range list {
		for _, e := range r.Exprs {
			if e.Verdict != nil && e.Verdict.Chain != "" {
				leads = append(leads, e.Verdict.Chain)
			}
			if _, known := f.Sets[e.Set]; known || e.Set == "" || e.Name != "lookup" {
				continue
			}
			set, err := x.set(f.Key, e.Set)
			if err != nil {
				return nil, err
			}
			f.Sets[e.Set] = set
			for _, el := range set.Elements {
				if el.Verdict != nil && el.Verdict.Chain != "" {
					leads = append(leads, el.Verdict.Chain)
				}
			}
		}
	}
	return leads, nil
}

func (x exchange) rules(key Key, chain string) (out []Rule, err error) {
	err = x.dump(appendRules(nil, x.Seq+1, key, chain), newRule, func(_ uint8, a attrs) error {
		if a.Text(ruleChain) != chain {
			return nil // of a kernel that does not filter by chain
		}
		r := Rule{Handle: a.Long(ruleHandle)}
		if list, ok := a.Get(ruleExprs); ok {
			list.Each(func(_ uint16, e attrs) { r.Exprs = append(r.Exprs, expr(e)) })
			if list.Err() != nil {
				return list.Err()
			}
		}
		out = append(out, r)
		return a.Err()
	})
	return out, err
}

// set reads one set with its elements.
func (x exchange) set(key Key, name string) (Set, error) {
	var out Set
	err := x.ask(appendNamed(nil, getSet, 0, x.Seq+1, key, setName, name), newSet, func(_ uint8, a attrs) error {
		out.Interval = a.Number(setFlags)&setInterval != 0
		return a.Err()
	})
	if err != nil {
		return out, err
	}
	err = x.dump(appendNamed(nil, getSetElem, nfnetlink.Dump, x.Seq+1, key, elemsSet, name), newSetElem, func(_ uint8, a attrs) error {
		list, ok := a.Get(elemsList)
		if !ok {
			return a.Err()
		}
		list.Each(func(_ uint16, e attrs) {
			if len(out.Elements) < mostElements {
				out.Elements = append(out.Elements, element(e))
			} else {
				out.Unread = true
			}
		})
		return list.Err()
	})
	return out, err
}

func element(a attrs) Element {
	e := Element{Key: value(a, elemKey), End: value(a, elemKeyEnd), Close: a.Number(elemFlags)&1 != 0}
	if data, ok := a.Get(elemData); ok {
		e.Data, e.Verdict = data.Bytes(dataValue), verdict(data)
	}
	return e
}
