package config

import (
	"encoding/json"
	"fmt"
	"time"
)

// Recommended is the one profile of idle times: those that fit connection tracking and
// keepalive of the node, computed where they are set.
const Recommended = "recommended"

// tcpTimeout is the flag --ipvs-tcp-timeout: a time, or Recommended. Either wins over
// both that the file may say.
type tcpTimeout struct{ s *Settings }

// Set implements pflag.Value.
func (t tcpTimeout) Set(text string) error {
	if text == Recommended {
		t.s.Own.IPVSTimeouts, t.s.Proxy.IPVS.TCPTimeout.Duration = Recommended, 0
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("neither a duration such as 2h nor the word %s", Recommended)
	}
	t.s.Own.IPVSTimeouts, t.s.Proxy.IPVS.TCPTimeout.Duration = "", d
	return nil
}

// String implements pflag.Value.
func (t tcpTimeout) String() string {
	switch {
	case t.s == nil:
		return "0s"
	case t.s.Own.IPVSTimeouts != "":
		return t.s.Own.IPVSTimeouts
	}
	return t.s.Proxy.IPVS.TCPTimeout.Duration.String()
}

// Type implements pflag.Value.
func (t tcpTimeout) Type() string { return "duration" }

// timeouts reads the idle times of IPVS.
func (p *problems) timeouts() Timeouts {
	ipvs := p.s.Proxy.IPVS
	t := Timeouts{
		TCP:         p.seconds("ipvs-tcp-timeout", ipvs.TCPTimeout.Duration),
		TCPFin:      p.seconds("ipvs-tcpfin-timeout", ipvs.TCPFinTimeout.Duration),
		UDP:         p.seconds("ipvs-udp-timeout", ipvs.UDPTimeout.Duration),
		Recommended: p.s.Own.IPVSTimeouts == Recommended,
	}
	switch {
	case t.Recommended && t.TCP != 0:
		p.list = append(p.list, fmt.Errorf("ipvsTimeouts: %s and ipvs.tcpTimeout: %s both set the TCP timeout; remove one of them", Recommended, t.TCP))
	case !t.Recommended && p.s.Own.IPVSTimeouts != "":
		p.list = append(p.list, fmt.Errorf("ipvsTimeouts: %q is not the word %s; a time belongs in ipvs.tcpTimeout", p.s.Own.IPVSTimeouts, Recommended))
	}
	return t
}

// hint tells who wrote the word where kube-proxy has a time where it belongs.
func hint(row setting, raw json.RawMessage) string {
	if row.field == "ipvs.tcpTimeout" && string(raw) == `"`+Recommended+`"` {
		return "; ipvsTimeouts: " + Recommended + " of " + OwnKind + " is how to say it"
	}
	return ""
}

// maxDrain bounds how long a connection to a removed endpoint may continue.
const maxDrain = time.Hour

func (p *problems) drain(d time.Duration) time.Duration {
	if d < 0 || d > maxDrain {
		p.add("drain", "%s is not between 0s, which cuts connections, and 1h", d)
	}
	return d
}
