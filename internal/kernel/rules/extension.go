package rules

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// extension is a match (-m) or target (-j) with its options in order.
type extension struct {
	name    string
	options []extOption
}

// extOption is "[!] --name args...".
type extOption struct {
	not  bool
	name string
	args []token
}

func (e extension) appendOptions(out []string) []string {
	for _, o := range e.options {
		if o.not {
			out = append(out, "!")
		}
		out = append(out, o.name)
		for _, a := range o.args {
			out = append(out, a.raw)
		}
	}
	return out
}

// normalise applies what is known about the extension; an unknown one keeps
// its text.
func (e *extension) normalise(f Family, known map[string]func(Family, *extension)) {
	if fix := known[e.name]; fix != nil {
		fix(f, e)
	}
}

// set replaces the arguments of an option by one bare word.
func (o *extOption) set(value string) { o.args = []token{{val: value, raw: value}} }

// has reports whether the option is there with exactly one bare argument.
func (o *extOption) has(name string) bool {
	return o.name == name && len(o.args) == 1 && o.args[0].bare()
}

// matchRules holds the matches whose saved form differs between what is
// written and what is read, or between versions of the tools.
var matchRules = map[string]func(Family, *extension){
	"comment":   fixComment,
	"mark":      fixMarkMatch,
	"conntrack": fixConntrack,
	"statistic": fixStatistic,
	"recent":    fixRecent,
	"ipvs":      fixIPVS,
	"tcp":       fixPorts,
	"udp":       fixPorts,
	"sctp":      fixPorts,
}

// targetRules is the same for targets.
var targetRules = map[string]func(Family, *extension){
	"MARK":       fixMarkTarget,
	"REJECT":     fixReject,
	"MASQUERADE": fixMasquerade,
}

func fixComment(_ Family, e *extension) {
	for i := range e.options {
		if o := &e.options[i]; o.name == "--comment" && len(o.args) == 1 {
			o.args[0].raw = Quote(o.args[0].val)
		}
	}
}

// ctstates is the order in which the states are saved.
var ctstates = []string{"INVALID", "NEW", "RELATED", "ESTABLISHED", "UNTRACKED", "SNAT", "DNAT"}

func fixConntrack(_ Family, e *extension) {
	for i := range e.options {
		o := &e.options[i]
		if !o.has("--ctstate") {
			continue
		}
		states := strings.Split(strings.ToUpper(o.args[0].val), ",")
		if slices.ContainsFunc(states, func(s string) bool { return !slices.Contains(ctstates, s) }) {
			continue
		}
		slices.SortFunc(states, func(a, b string) int {
			return slices.Index(ctstates, a) - slices.Index(ctstates, b)
		})
		o.set(strings.Join(slices.Compact(states), ","))
	}
}

// fixStatistic: the kernel holds a probability in 31 bits and the tools
// print what is left of it with 11 decimals.
func fixStatistic(_ Family, e *extension) {
	for i := range e.options {
		o := &e.options[i]
		if !o.has("--probability") {
			continue
		}
		p, err := strconv.ParseFloat(o.args[0].val, 64)
		if err != nil || p < 0 || p > 1 {
			continue
		}
		o.set(strconv.FormatFloat(math.Round(p*(1<<31))/(1<<31), 'f', 11, 64))
	}
}

var recentOrder = []string{
	"--set", "--rcheck", "--update", "--remove", "--seconds", "--hitcount", "--rttl", "--reap",
	"--name", "--mask", "--rsource", "--rdest",
}

// fixRecent adds the defaults that are always saved.
func fixRecent(f Family, e *extension) {
	mask := "255.255.255.255"
	if f == IPv6 {
		mask = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
	}
	e.addDefault("--name", "DEFAULT")
	e.addDefault("--mask", mask)
	if !e.hasOption("--rdest") && !e.hasOption("--rsource") {
		e.options = append(e.options, extOption{name: "--rsource"})
	}
	sortOptions(e.options, recentOrder)
}

func (e *extension) hasOption(name string) bool {
	return slices.ContainsFunc(e.options, func(o extOption) bool { return o.name == name })
}

func (e *extension) addDefault(name, value string) {
	if !e.hasOption(name) {
		o := extOption{name: name}
		o.set(value)
		e.options = append(e.options, o)
	}
}

var ipvsOrder = []string{"--ipvs", "--vproto", "--vaddr", "--vport", "--vdir", "--vmethod", "--vportctl"}

// fixIPVS: protocols are saved as numbers and a host address without its
// prefix length on one family only, so it is dropped on both.
func fixIPVS(_ Family, e *extension) {
	for i := range e.options {
		switch o := &e.options[i]; {
		case o.has("--vproto"):
			if n, ok := protocolNumbers[strings.ToLower(o.args[0].val)]; ok {
				o.set(n)
			}
		case o.has("--vaddr"):
			v := o.args[0].val
			o.set(strings.TrimSuffix(strings.TrimSuffix(v, "/128"), "/32"))
		}
	}
	sortOptions(e.options, ipvsOrder)
}

var protocolNumbers = map[string]string{"tcp": "6", "udp": "17", "sctp": "132"}

var portOrder = []string{"--sport", "--dport", "--tcp-option", "--tcp-flags", "--chunk-types"}

func fixPorts(_ Family, e *extension) {
	for i := range e.options {
		switch o := &e.options[i]; o.name {
		case "--destination-port":
			o.name = "--dport"
		case "--source-port":
			o.name = "--sport"
		}
	}
	sortOptions(e.options, portOrder)
}

// fixReject adds the default of the family, which is always saved.
func fixReject(f Family, e *extension) {
	with := "icmp-port-unreachable"
	if f == IPv6 {
		with = "icmp6-port-unreachable"
	}
	for i := range e.options {
		if o := &e.options[i]; o.has("--reject-with") {
			o.set(rejectName(f, o.args[0].val))
		}
	}
	e.addDefault("--reject-with", with)
}

// rejectName turns the accepted aliases into the saved name.
func rejectName(f Family, s string) string {
	switch {
	case s == "tcp-rst":
		return "tcp-reset"
	case f == IPv4 && s == "port-unreach":
		return "icmp-port-unreachable"
	case f == IPv6 && s == "port-unreach":
		return "icmp6-port-unreachable"
	}
	return s
}

func fixMasquerade(_ Family, e *extension) {
	sortOptions(e.options, []string{"--to-ports", "--random", "--random-fully"})
}
