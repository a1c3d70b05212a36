package nft

import (
	"cmp"
	"fmt"
)

// Base is what makes a chain a base chain: the hook that calls it. The zero value is a chain that
// only rules lead to.
type Base struct {
	// Type is filter or nat.
	Type string
	// Hook is prerouting, input, forward, output or postrouting.
	Hook string
	// Priority orders the functions of a hook, the lowest first.
	Priority int32
}

// The base chains, by the chain of iptables whose place they take. The package comment has the
// picture and the reasons.
var (
	ManglePrerouting = Base{"filter", "prerouting", -150}
	MangleForward    = Base{"filter", "forward", -150}
	MangleOutput     = Base{"filter", "output", -150}
	NATPrerouting    = Base{"nat", "prerouting", -105}
	NATOutput        = Base{"nat", "output", -105}
	NATPostrouting   = Base{"nat", "postrouting", 95}
	FilterInput      = Base{"filter", "input", -10}
	FilterForward    = Base{"filter", "forward", -10}
	FilterOutput     = Base{"filter", "output", -10}
)

// hooks are the numbers of enum nf_inet_hooks, by name.
var hooks = map[string]uint32{"prerouting": 0, "input": 1, "forward": 2, "output": 3, "postrouting": 4}

func hookName(number uint32) string {
	for name, n := range hooks {
		if n == number {
			return name
		}
	}
	return fmt.Sprintf("hook-%d", number)
}

// check refuses a base chain that does not exist in the kernel.
func (b Base) check() error {
	if b == (Base{}) {
		return nil
	}
	if _, ok := hooks[b.Hook]; !ok || b.Type != "filter" && b.Type != "nat" {
		return fmt.Errorf("base chain of type %q at hook %q: %w", b.Type, b.Hook, ErrInvalid)
	}
	return nil
}

// standard are the names that nft(8) has for priorities, and the hook where it has them; an empty
// hook is all of them.
var standard = []struct {
	name     string
	priority int32
	hook     string
}{
	{"raw", -300, ""}, {"mangle", -150, ""}, {"dstnat", -100, "prerouting"}, {"filter", 0, ""}, {"security", 50, ""}, {"srcnat", 100, "postrouting"},
}

// nearby is how far from a standard priority nft(8) prints the difference.
const nearby = 10

// String prints the line of a base chain: "type filter hook input priority filter - 10; policy accept;".
func (b Base) String() string {
	return fmt.Sprintf("type %s hook %s priority %s; policy accept;", b.Type, b.Hook, b.priority())
}

func (b Base) priority() string {
	for _, s := range standard {
		d := b.Priority - s.priority
		switch {
		case s.hook != "" && s.hook != b.Hook || d < -nearby || d > nearby:
		case d == 0:
			return s.name
		case d > 0:
			return fmt.Sprintf("%s + %d", s.name, d)
		default:
			return fmt.Sprintf("%s - %d", s.name, -d)
		}
	}
	return fmt.Sprint(b.Priority)
}

// Compare orders base chains by hook and priority, chains without a hook first.
func (b Base) Compare(o Base) int {
	return cmp.Or(
		cmp.Compare(hookRank(b), hookRank(o)), cmp.Compare(b.Priority, o.Priority), cmp.Compare(b.Type, o.Type),
	)
}

func hookRank(b Base) int {
	if b == (Base{}) {
		return -1
	}
	return int(hooks[b.Hook])
}
