package config

import (
	"fmt"
	"strings"
	"time"
)

// Mode is the way in which this node serves (--proxy-mode).
type Mode string

// The modes. ModeAuto is ModeIPVS where the kernel can, else ModeIPTables without a
// complaint.
const (
	ModeIPVS     Mode = "ipvs"
	ModeIPTables Mode = "iptables"
	ModeAuto     Mode = "auto"
)

// OnMissing is what ModeIPVS does on a kernel without ip_vs (--on-missing-ipvs;
// internal/DECISIONS.md, Missing IPVS).
type OnMissing string

// The values of --on-missing-ipvs: carry Services in ModeIPTables, or end.
const (
	OnMissingIPTables OnMissing = "iptables"
	OnMissingFail     OnMissing = "fail"
)

// Rules is where ModeIPVS keeps rules and sets (--rules).
type Rules string

// The values of --rules. RulesAuto is RulesIPTables where the kernel and the tools have iptables and
// ipset, else RulesNFTables.
const (
	RulesAuto     Rules = "auto"
	RulesIPTables Rules = "iptables"
	RulesNFTables Rules = "nftables"
)

// Periods are the time between two audits and the least time between two changes of
// the kernel, 0 for none, where Services are carried in mode m. Those of ModeAuto
// are those of ModeIPVS: ask for the mode that runs.
func (c Config) Periods(m Mode) (sync, least time.Duration) {
	if m == ModeIPTables {
		return c.IPTablesSyncPeriod, c.IPTablesMinSyncPeriod
	}
	return c.SyncPeriod, c.MinSyncPeriod
}

// mode reads --proxy-mode. The error for kube-proxy's nftables mode names the mode to use instead,
// and a flag that sets it without a change of the file.
func (p *problems) mode(text string) Mode {
	switch text {
	case "":
		return ModeIPVS
	case "nftables":
		reason := "%q is not one of %s: only kube-proxy has this mode; use ipvs, which takes over the rules it left on this node"
		if p.s.ConfigFile != "" && !p.s.given["proxy-mode"] {
			reason += "; --proxy-mode=ipvs wins over the file"
		}
		p.add("proxy-mode", reason, text, strings.Join(Choices("proxy-mode"), ", "))
	default:
		p.oneOf("proxy-mode", text)
	}
	return Mode(text)
}

// onMissing reads --on-missing-ipvs.
func (p *problems) onMissing(text string) OnMissing {
	p.oneOf("on-missing-ipvs", text)
	return OnMissing(text)
}

// rules reads --rules.
func (p *problems) rules(text string) Rules {
	p.oneOf("rules", text)
	return Rules(text)
}

// idleModeSettings names settings that ask for what the mode never comes to.
func (s *Settings) idleModeSettings(c Config) []string {
	mode, fail := s.with("proxy-mode", string(c.Mode)), s.with("on-missing-ipvs", string(OnMissingFail))
	var out []string
	if c.OnMissing == OnMissingFail && (c.Mode == ModeIPTables || c.Mode == ModeAuto) {
		out = append(out, fmt.Sprintf("%s: without effect with %s", fail, mode))
	}
	if c.Mode == ModeIPTables && c.Rules == RulesNFTables {
		out = append(out, fmt.Sprintf("%s: without effect with %s", s.with("rules", string(c.Rules)), mode))
	}
	return out
}
