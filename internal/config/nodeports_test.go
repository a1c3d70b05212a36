package config_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kube-ipvs/kube-ipvs/internal/config"
)

// byValue compares what has no exported fields.
var byValue = cmp.Options{
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
}

func TestNodePortAddresses(t *testing.T) {
	v4, v6 := netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("2001:db8::/32")
	for _, tt := range []struct {
		name string
		list []string
		want config.NodePortSelection
	}{
		{"nothing is all", nil, config.NodePortSelection{All: true}},
		{"primary alone", []string{"primary"}, config.NodePortSelection{Primary: true}},
		{"localhost alone", []string{"localhost"}, config.NodePortSelection{Localhost: true}},
		{"ranges, masked, do not select all", []string{"10.1.2.3/16", " 2001:db8:1::/32"}, config.NodePortSelection{CIDRs: []netip.Prefix{v4, v6}}},
		{"mixed", []string{"localhost", "10.1.0.0/16", "primary", "all"}, config.NodePortSelection{Primary: true, Localhost: true, All: true, CIDRs: []netip.Prefix{v4}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := config.Defaults()
			s.Proxy.NodePortAddresses = tt.list
			if diff := cmp.Diff(tt.want, meaning(t, s).NodePorts, byValue); diff != "" {
				t.Errorf("selection (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNodePortRange(t *testing.T) {
	for _, tt := range []struct {
		text    string
		want    config.PortRange
		mistake string
	}{
		{text: "30000-32767", want: config.PortRange{First: 30000, Last: 32767}},
		{text: " 30000+2767 ", want: config.PortRange{First: 30000, Last: 32767}},
		{text: "31000", want: config.PortRange{First: 31000, Last: 31000}},
		{text: "1-64511", want: config.PortRange{First: 1, Last: 64511}},
		{text: "2048-65535", want: config.PortRange{First: 2048, Last: 65535}},
		{text: "0-0"},
		{text: ""},
		{text: " "},
		{text: "30000-", mistake: "is not a range such as"},
		{text: "-30000", mistake: "is not a range such as"},
		{text: "+", mistake: "is not a range such as"},
		{text: "30000--32767", mistake: "is not a range such as"},
		{text: "30000-32767-1", mistake: "is not a range such as"},
		{text: "30000 - 32767", mistake: "is not a range such as"},
		{text: "many", mistake: "is not a range such as"},
		{text: "99999999999999999999+1", mistake: "is not a range such as"},
		{text: "0-100", mistake: "is not an ascending range between 1 and 65535"},
		{text: "32767-30000", mistake: "is not an ascending range between 1 and 65535"},
		{text: "30000-65536", mistake: "is not an ascending range between 1 and 65535"},
		{text: "30000+40000", mistake: "is not an ascending range between 1 and 65535"},
		{text: "1-65535", mistake: "fewer than 1024 adjacent ports"},
		{text: "2047-64512", mistake: "fewer than 1024 adjacent ports"},
	} {
		t.Run(tt.text, func(t *testing.T) {
			s := config.Defaults()
			s.Own.ServiceNodePortRange = tt.text
			c, err := s.Check("node")
			if c.NodePortRange != tt.want {
				t.Errorf("range %v, want %v", c.NodePortRange, tt.want)
			}
			if tt.mistake == "" && err != nil {
				t.Errorf("mistake %v", err)
			}
			if tt.mistake != "" && (err == nil || !strings.Contains(err.Error(), tt.mistake) || !strings.Contains(err.Error(), `"`+tt.text+`"`)) {
				t.Errorf("mistake %v, want %q and the value", err, tt.mistake)
			}
		})
	}
}

func TestNodePortRangeUnlessGiven(t *testing.T) {
	if got, want := meaning(t, config.Defaults()).NodePortRange, (config.PortRange{First: 30000, Last: 32767}); got != want {
		t.Errorf("range %v, want %v", got, want)
	}
}

// meaning is what good settings mean.
func meaning(t *testing.T, s config.Settings) config.Config {
	t.Helper()
	c, err := s.Check("node")
	if err != nil {
		t.Fatal(err)
	}
	return c
}
