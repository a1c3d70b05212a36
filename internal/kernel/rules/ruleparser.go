package rules

import (
	"slices"
	"strings"
)

// ruleParser consumes words; current is the extension that owns the options
// seen next, nil before the first.
type ruleParser struct {
	family  Family
	words   []token
	rule    parsed
	current *extension
}

// step consumes one option with its arguments.
func (p *ruleParser) step() bool {
	not := p.words[0].raw == "!" && len(p.words) > 1
	option := p.words[0]
	if not {
		option = p.words[1]
	}
	if !option.bare() || !strings.HasPrefix(option.val, "-") {
		return false
	}
	if letter, ok := headNames[option.val]; ok {
		return p.takeHead(letter, not)
	}
	switch {
	case !not && (option.val == "-m" || option.val == "--match"):
		return p.takeMatch()
	case !not && jumpNames[option.val] != "":
		return p.takeTarget(jumpNames[option.val])
	case !not && (option.val == "-c" || option.val == "--set-counters"):
		return p.skip(3)
	case isPortOption(option.val) && !p.ownsPorts() && !p.implyProtocolMatch():
		return false
	}
	if p.current == nil {
		return false
	}
	p.takeOption(not)
	return true
}

func (p *ruleParser) skip(n int) bool {
	if len(p.words) < n {
		return false
	}
	p.words = p.words[n:]
	return true
}

func (p *ruleParser) takeHead(letter string, not bool) bool {
	var text []string
	if not {
		p.words, text = p.words[1:], []string{"!"}
	}
	if p.words, text = p.words[1:], append(text, letter); letter != "-f" {
		if len(p.words) == 0 || !p.words[0].bare() {
			return false
		}
		value := headValue(p.family, letter, p.words[0])
		p.words, text = p.words[1:], append(text, value)
		if value == "" { // matches everything: iptables-save leaves it out
			return !not
		}
	}
	p.rule.head[letter] = text
	return true
}

func (p *ruleParser) takeMatch() bool {
	if len(p.words) < 2 || !p.words[1].bare() {
		return false
	}
	p.rule.matches = append(p.rule.matches, extension{name: p.words[1].val})
	p.current = &p.rule.matches[len(p.rule.matches)-1]
	return p.skip(2)
}

func (p *ruleParser) takeTarget(option string) bool {
	if len(p.words) < 2 || !p.words[1].bare() {
		return false
	}
	p.rule.jump, p.rule.target = option, extension{name: p.words[1].val}
	p.current = &p.rule.target
	return p.skip(2)
}

// takeOption moves one "[!] --name args..." to the current extension. A
// comment is one argument, whatever it looks like: "-c" is saved bare.
func (p *ruleParser) takeOption(not bool) {
	o := extOption{not: not}
	if not {
		p.words = p.words[1:]
	}
	o.name, p.words = p.words[0].val, p.words[1:]
	for len(p.words) > 0 && (o.name == "--comment" && len(o.args) == 0 || isArgument(p.words[0])) {
		o.args, p.words = append(o.args, p.words[0]), p.words[1:]
	}
	p.current.options = append(p.current.options, o)
}

func isArgument(t token) bool { return t.raw != "!" && !strings.HasPrefix(t.raw, "-") }

func isPortOption(name string) bool {
	switch name {
	case "--dport", "--sport", "--destination-port", "--source-port", "--tcp-flags", "--syn":
		return true
	}
	return false
}

// hasPorts: the protocol's match has port options of its own.
func hasPorts(match string) bool {
	switch match {
	case "tcp", "udp", "sctp", "dccp", "udplite":
		return true
	}
	return false
}

func (p *ruleParser) ownsPorts() bool { return p.current != nil && hasPorts(p.current.name) }

// implyProtocolMatch is what the tools do on "-p tcp --dport": load tcp,
// once. Without a protocol in front they refuse the rule.
func (p *ruleParser) implyProtocolMatch() bool {
	proto := p.rule.head["-p"]
	if len(proto) != 2 || !hasPorts(proto[1]) {
		return false
	}
	i := slices.IndexFunc(p.rule.matches, func(e extension) bool { return e.name == proto[1] })
	if i < 0 {
		i = len(p.rule.matches)
		p.rule.matches = append(p.rule.matches, extension{name: proto[1]})
	}
	p.current = &p.rule.matches[i]
	return true
}
