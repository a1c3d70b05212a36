package rules

import (
	"fmt"
	"slices"
)

// jumpPlan turns changes of jumps into lines for iptables-restore, row by row, and tracks the
// effect of each line on the hooks.
type jumpPlan struct {
	hooks  map[ChainKey][]string // rules as printed
	tables tableSet
}

func newJumpPlan(hooks map[ChainKey][]string) *jumpPlan {
	p := &jumpPlan{hooks: map[ChainKey][]string{}, tables: tableSet{}}
	for key, list := range hooks {
		p.hooks[key] = slices.Clone(list)
	}
	return p
}

// hookOf is the built-in chain that a jump starts from.
func hookOf(k JumpKey) ChainKey { return ChainKey{Family: k.Family, Table: k.Table, Name: k.Hook} }

// Hooks are the built-in chains of the tables that every kernel has, in the order in
// which a packet meets them (iptables(8), "TABLES").
func Hooks() map[string][]string {
	return map[string][]string{
		"filter": {"INPUT", "FORWARD", "OUTPUT"},
		"nat":    {"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"},
		"mangle": {"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"},
		"raw":    {"PREROUTING", "OUTPUT"},
	}
}

// FewHooks are read one by one; to list everything is no more than a process, too, and
// shows all of them.
const FewHooks = 2

// change adds the lines of one row. A stale jump goes after the new one is in, one that no
// packet reaches before, since the tools delete the first of several equal rules.
func (p *jumpPlan) change(row int, c JumpChange) {
	present, at, unreached := p.find(c)
	if c.Op != Delete && unreached {
		for _, have := range present {
			p.delete(row, c.Key, have)
		}
		present, at, _ = p.find(c)
	}
	keep := -1
	if c.Op != Delete {
		rule := Canonical(c.Key.Family, c.Jump.Rule(c.Key.Target))
		keep = slices.IndexFunc(present, func(have string) bool { return Canonical(c.Key.Family, have) == rule })
		if keep < 0 {
			p.add(row, c, rule, at)
		}
	}
	for i, have := range present {
		if _, jump, _ := jumpOf(hookOf(c.Key), have); i != keep && !c.spares(jump) {
			p.delete(row, c.Key, have)
		}
	}
}

// find lists the jumps of the key in its hook, in order, and the number of rules that a
// new one goes behind. It reports whether a packet cannot reach one of those listed.
// Comparing canonical text replaces the tools' own check, which is known to miss rules
// over quoting.
func (p *jumpPlan) find(c JumpChange) (present []string, at int, unreached bool) {
	hook := hookOf(c.Key)
	list := p.hooks[hook]
	reach := Reach(hook.Family, list)
	for i, rule := range list {
		switch key, _, ok := jumpOf(hook, rule); {
		case ok && key == c.Key:
			present = append(present, rule)
			unreached = unreached || i >= reach
		case ok && slices.Contains(c.Behind, key.Target) && i < reach:
			at = i + 1
		}
	}
	if c.Last {
		at = LastPlace(hook.Family, list)
	}
	return present, at, unreached
}

// LastPlace is the number of rules of a built-in chain that a jump with [JumpChange.Last]
// goes behind: all, or those before the rule that ends the way of every packet.
func LastPlace(f Family, rules []string) int {
	reach := Reach(f, rules)
	if reach > 0 && endsAll(f, rules[reach-1]) {
		return reach - 1
	}
	return reach
}

func (p *jumpPlan) add(row int, c JumpChange, rule string, at int) {
	hook := hookOf(c.Key)
	line := fmt.Sprintf("-I %s %d %s", hook.Name, at+1, rule)
	if at == len(p.hooks[hook]) {
		line = fmt.Sprintf("-A %s %s", hook.Name, rule)
	}
	p.tables.at(hook.Table).inOrder(row, line)
	p.hooks[hook] = slices.Insert(p.hooks[hook], at, rule)
}

// delete takes the first rule that equals it, as the tools do.
func (p *jumpPlan) delete(row int, k JumpKey, rule string) {
	hook, want := hookOf(k), Canonical(k.Family, rule)
	p.tables.at(hook.Table).inOrder(row, fmt.Sprintf("-D %s %s", hook.Name, rule))
	i := slices.IndexFunc(p.hooks[hook], func(have string) bool { return Canonical(k.Family, have) == want })
	p.hooks[hook] = slices.Delete(p.hooks[hook], i, i+1)
}

// JumpText returns the text that [Handle.WriteJumps] passes to iptables-restore --noflush for one
// family whose hooks hold these rules, or "" if no jump has to be written.
func JumpText(f Family, hooks map[ChainKey][]string, changes []JumpChange) string {
	p := newJumpPlan(hooks)
	for row, c := range changes {
		if c.Key.Family == f {
			p.change(row, c)
		}
	}
	return p.tables.render().text
}
